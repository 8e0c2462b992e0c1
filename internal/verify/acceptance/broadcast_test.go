package acceptance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func broadcast(c *subConfig) { c.ConsumerGroup, c.MaxInFlight = redisdelay.Broadcast, 10 }

// leftovers lists the topic's keys, but for those of publishers and of the group steady.
func leftovers(s *fixture.Scene) []string {
	s.T.Helper()
	keys, err := s.Keys(context.Background())
	require.NoError(s.T, err)
	stays := func(key string) bool {
		kind := fixture.Kind(key)
		return strings.HasSuffix(kind, ":steady") || slices.Contains([]string{"publishers", "partitions"}, kind) ||
			kind == "groups" && slices.Equal(s.Client.SMembers(context.Background(), key).Val(), []string{"steady"})
	}
	return slices.DeleteFunc(keys, stays)
}

func TestEachBroadcastSubscriberGetsAllMessagesAndLeavesNothing(t *testing.T) {
	for name, newScene := range map[string]func(t *testing.T) *fixture.Scene{"single": fixture.New, "cluster": onCluster} {
		for _, partitions := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s, %d partitions", name, partitions), func(t *testing.T) {
				t.Parallel() // beside the others of these alone: it measures Close
				s := newScene(t)
				// A machine that stands still for half a second makes Close fail: that is all it has for its last calls.
				require.True(t, broadcastLeavesNothing(s, partitions) || broadcastLeavesNothing(s.Beside("/again"), partitions))
			})
		}
	}
}

// broadcastLeavesNothing returns false if Close has failed or took too long.
func broadcastLeavesNothing(s *fixture.Scene, partitions int) bool {
	const closeTimeout = 300 * time.Millisecond
	t := s.T
	t.Helper()
	p := s.Publisher(fixture.Partitions(partitions))
	steady := s.Subscribe(group("steady"))
	require.NoError(t, p.Publish(s.Topic, fixture.Delayed("delayed", 1500*time.Millisecond)))
	hasty := func(c *subConfig) { c.CloseTimeout = closeTimeout }
	one, two := s.Subscriber(broadcast, hasty), s.Subscriber(broadcast, hasty)
	require.NoError(t, one.SubscribeInitialize(s.Topic))
	var all []<-chan *message.Message
	for _, sub := range []*redisdelay.Subscriber{one, two} {
		messages, err := sub.Subscribe(t.Context(), s.Topic)
		require.NoError(t, err)
		all = append(all, messages)
	}
	want := []string{"delayed"}
	for i := range 8 {
		want = append(want, fmt.Sprint(i))
		require.NoError(t, p.Publish(s.Topic, message.NewMessage(fmt.Sprint(i), nil)))
	}
	groups := make([]string, len(all))
	for n, messages := range all {
		var got []string
		for range want {
			msg := s.Next(messages)
			got = append(got, msg.UUID)
			groups[n] = fixture.Delivery(t, msg).Group
			if n == 0 { // the other one holds them till its end
				msg.Ack()
			}
		}
		assert.ElementsMatch(t, want, got)
	}
	require.NotEqual(t, groups[0], groups[1])
	require.NoError(t, one.Close())
	members := s.Client.SMembers(t.Context(), s.Key("groups")).Val()
	assert.ElementsMatch(t, []string{"steady", groups[1]}, members)
	start := time.Now()
	err := two.Close()
	if took := time.Since(start); err != nil || took > closeTimeout+1500*time.Millisecond { // its handlers take CloseTimeout
		t.Log(took, err)
		return false
	}
	for _, key := range leftovers(s) { // the messages of the group steady
		assert.Contains(t, []string{"messages", "refs"}, fixture.Kind(key))
	}
	for range want {
		s.Next(steady).Ack()
	}
	require.Eventually(t, func() bool { return len(leftovers(s)) == 0 }, fixture.Soon, time.Millisecond, "%v", leftovers(s))
	return true
}

func TestABroadcastSubscriberHasDeadLettersOfItsOwn(t *testing.T) {
	s := fixture.New(t)
	s.Subscribe(group("steady"))
	sub := s.Subscriber(broadcast, func(c *subConfig) { c.MaxDeliveries = 1 })
	messages, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	s.Publish("a")
	msg := s.Next(messages)
	group := fixture.Delivery(t, msg).Group
	msg.Nack()
	letter := dead.Letters(s, 1)[0]
	assert.Equal(t, group, letter.Group)
	require.Equal(t, 1, dead.Requeue(s, letter.ID))
	s.Next(messages).Nack()
	dead.Letters(s, 1)
	require.NoError(t, sub.Close())
	assert.NotContains(t, s.Kinds(), "dead:"+group)
}

// slowWay delays the first calls about Broadcast groups on their way to Redis, whatever becomes of their callers.
type slowWay struct {
	redistest.Hook
	used    atomic.Int64
	delayed chan struct{} // has one for each call that is on its way, as many as it has room for
}

func (w *slowWay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.Contains(cmd.String(), " broadcast-") && w.used.Add(1) <= int64(cap(w.delayed)) {
			w.delayed <- struct{}{}
			<-time.After(300 * time.Millisecond)
			ctx = context.WithoutCancel(ctx)
		}
		return next(ctx, cmd)
	}
}

// TestCloseEndsTheGroupsOfBroadcastSubscriptionsThatJustBegin, though the calls that register them reach Redis late.
func TestCloseEndsTheGroupsOfBroadcastSubscriptionsThatJustBegin(t *testing.T) {
	for name, begin := range map[string]func(sub *redisdelay.Subscriber, topic string) error{
		"Subscribe": func(sub *redisdelay.Subscriber, topic string) error {
			_, err := sub.Subscribe(context.Background(), topic)
			return err
		},
		"SubscribeInitialize": (*redisdelay.Subscriber).SubscribeInitialize,
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			s.Subscribe(group("steady")) // so Redis has the scripts
			link, way := &switchable{}, &slowWay{delayed: make(chan struct{}, 2)}
			client := link.client(s)
			client.AddHook(way)
			sub := s.Subscriber(broadcast, func(c *subConfig) { c.Client = client })
			begun := make(chan error, 2)
			for range cap(begun) {
				go func() { begun <- begin(sub, s.Topic) }()
			}
			require.Eventually(t, func() bool { return len(way.delayed) == cap(way.delayed) }, fixture.Soon, time.Millisecond)
			require.NoError(t, sub.Close())
			for range cap(begun) {
				require.ErrorIs(t, <-begun, redisdelay.ErrSubscriberClosed)
			}
			assert.Equal(t, []string{"steady"}, s.Client.SMembers(t.Context(), s.Key("groups")).Val())
		})
	}
}

// TestABroadcastSubscriberThatCrashesIsForgotten with all that it holds: its group expires.
func TestABroadcastSubscriberThatCrashesIsForgotten(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, partitions := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d partitions", partitions), func(t *testing.T) {
			t.Parallel() // it mostly waits
			s := fixture.New(t)
			p := s.Publisher(fixture.Partitions(partitions))
			require.NoError(t, p.Publish(s.Topic, message.NewMessage("first", nil)))
			steady := s.Subscribe(group("steady"))
			s.Expect(steady, "first")
			link := &switchable{}
			crashed := s.Subscriber(broadcast, short, func(c *subConfig) { c.Client, c.GroupExpiry = link.client(s), time.Second })
			messages, err := crashed.Subscribe(t.Context(), s.Topic)
			require.NoError(t, err)
			for i := range 6 {
				require.NoError(t, p.Publish(s.Topic, message.NewMessage(fmt.Sprint(i), nil)))
				s.Next(steady).Ack()
			}
			s.Next(messages).Ack()
			s.Next(messages).Nack()
			s.Next(messages)
			link.cut()
			require.Eventually(t, func() bool { return len(leftovers(s)) == 0 }, time.Minute, 50*time.Millisecond)
			told := func() int { return s.Log.Count("Ended a consumer group that had no live subscriber") }
			// Whoever ends it tells when all partitions have answered.
			require.Eventually(t, func() bool { return told() > 0 }, fixture.Soon, time.Millisecond, "%v", s.Log.Lines())
			assert.Equal(t, 1, told(), "%v", s.Log.Lines())
		})
	}
}
