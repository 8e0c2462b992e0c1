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

func TestBroadcastSubscribersGetAllMessagesAndLeaveNoKeys(t *testing.T) {
	for partitions, newScene := range map[int]func(t *testing.T) *fixture.Scene{1: fixture.New, 4: onCluster} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			t.Parallel() // beside the others of these alone: it measures Close
			s := newScene(t)
			// A machine that stands still for half a second makes Close fail: that is all it has for its last calls.
			require.True(t, broadcastLeavesNothing(s, partitions) || broadcastLeavesNothing(s.Beside("/again"), partitions))
		})
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

// TestCloseRemovesTheGroupsOfNewBroadcastSubscriptions, though the calls that register them reach Redis late.
func TestCloseRemovesTheGroupsOfNewBroadcastSubscriptions(t *testing.T) {
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
			way := &slowWay{delayed: make(chan struct{}, 2)}
			client := redistest.Shared(t).Client(t)
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
