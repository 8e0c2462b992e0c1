package acceptance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// tallies counts what readers have got.
type tallies struct {
	mu     sync.Mutex
	got    map[int]map[string]int // guarded by mu; by reader, how often each UUID
	groups map[int]string         // guarded by mu; of each reader
	late   chan struct{}          // has a signal after each message
	t      *testing.T
}

func newTallies(t *testing.T) *tallies {
	t.Helper()
	return &tallies{got: map[int]map[string]int{}, groups: map[int]string{}, late: make(chan struct{}, 10_000), t: t}
}

func (c *tallies) handle(reader int, msg *message.Message) {
	c.mu.Lock()
	if c.got[reader] == nil {
		c.got[reader] = map[string]int{}
	}
	c.got[reader][msg.UUID]++
	c.groups[reader] = fixture.Delivery(c.t, msg).Group
	c.mu.Unlock()
	msg.Ack()
	c.late <- struct{}{}
}

// read handles what comes on a channel.
func (c *tallies) read(reader int, messages <-chan *message.Message) {
	for msg := range messages {
		c.handle(reader, msg)
	}
}

// await waits for so many messages, of all readers together.
func (c *tallies) await(messages int) {
	c.t.Helper()
	for i := range messages {
		select {
		case <-c.late:
		case <-time.After(fixture.Soon):
			c.mu.Lock()
			defer c.mu.Unlock()
			require.Fail(c.t, "messages are missing", "%d of %d: %v", i, messages, c.got)
		}
	}
}

// TestSubscribesOfOneSubscriberShareATopic and its messages in a group, and each get all of them with Broadcast, in every way to
// subscribe.
func TestSubscribesOfOneSubscriberShareATopic(t *testing.T) {
	const readers, messages = 3, 20
	ways := map[string]func(s *fixture.Scene, sub *redisdelay.Subscriber, c *tallies, reader int) error{
		"Subscribe": func(s *fixture.Scene, sub *redisdelay.Subscriber, c *tallies, reader int) error {
			messages, err := sub.Subscribe(s.T.Context(), s.Topic)
			go c.read(reader, messages) // ends with the subscription
			return err
		},
		"SubscribeBatches": func(s *fixture.Scene, sub *redisdelay.Subscriber, c *tallies, reader int) error {
			return sub.SubscribeBatches(s.T.Context(), s.Topic, 7, func(batch []*message.Message) {
				for _, msg := range batch {
					c.handle(reader, msg)
				}
			})
		},
	}
	for name, subscribe := range ways {
		for _, group := range []string{"group", redisdelay.Broadcast} {
			t.Run(name+" in "+group, func(t *testing.T) {
				s := fixture.New(t)
				sub := s.Subscriber(func(c *subConfig) { c.ConsumerGroup, c.MaxInFlight = group, 4 })
				c := newTallies(t)
				for reader := range readers {
					require.NoError(t, subscribe(s, sub, c, reader))
				}
				var want []string
				for i := range messages {
					want = append(want, fmt.Sprint(i))
				}
				s.Publish(want...)
				each := 1
				if group == redisdelay.Broadcast {
					each = readers
				}
				c.await(messages * each)
				require.NoError(t, sub.Close())
				c.check(want, each)
				for _, kind := range s.Kinds() {
					assert.NotContains(t, kind, "broadcast-", "its groups have ended")
				}
			})
		}
	}
}

// check wants each message this often: by as many readers, each of them with its own group.
func (c *tallies) check(want []string, each int) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	total := map[string]int{}
	for _, got := range c.got {
		for uuid, times := range got {
			assert.Equal(c.t, 1, times, uuid)
			total[uuid] += times
		}
	}
	assert.ElementsMatch(c.t, want, slices.Collect(maps.Keys(total)))
	for uuid, times := range total {
		assert.Equal(c.t, each, times, uuid)
	}
	groups := map[string]struct{}{}
	for _, group := range c.groups {
		groups[group] = struct{}{}
	}
	assert.Len(c.t, groups, each)
}

// TestABroadcastGroupEndsWithItsContext and no other does.
func TestABroadcastGroupEndsWithItsContext(t *testing.T) {
	s := fixture.New(t)
	sub := s.Subscriber(broadcast)
	other, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	messages, err := sub.Subscribe(ctx, s.Topic)
	require.NoError(t, err)
	s.Publish("a")
	msg := s.Next(messages)
	group := fixture.Delivery(t, msg).Group
	require.Contains(t, groupsOf(s), group)
	cancel()
	msg.Nack()
	require.Eventually(t, func() bool { return !strings.Contains(fmt.Sprint(s.Kinds()), group) }, fixture.Soon, time.Millisecond)
	s.Closed(messages)
	s.Expect(other, "a")
	require.Len(t, groupsOf(s), 1)
	s.Publish("b")
	s.Expect(other, "b")
}

// TestSubscribeInitializeCreatesTheNextBroadcastGroup, so that it misses no message.
func TestSubscribeInitializeCreatesTheNextBroadcastGroup(t *testing.T) {
	s := fixture.New(t)
	steady := s.Subscribe(group("steady"))
	sub := s.Subscriber(broadcast)
	require.NoError(t, sub.SubscribeInitialize(s.Topic))
	require.NoError(t, sub.SubscribeInitialize(s.Topic), "the same again")
	require.Len(t, groupsOf(s), 2)
	s.Publish("before")
	s.Expect(steady, "before")
	first, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	second, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	require.Len(t, groupsOf(s), 3)
	s.Expect(first, "before")
	s.Publish("after")
	s.Expect(first, "after")
	s.Expect(second, "after")
	require.NoError(t, sub.SubscribeInitialize(s.Topic), "nobody takes this one")
	require.Len(t, groupsOf(s), 4)
	require.NoError(t, sub.Close())
	assert.Equal(t, []string{"steady"}, groupsOf(s))
}

func groupsOf(s *fixture.Scene) []string {
	return s.Client.SMembers(context.Background(), s.Key("groups")).Val()
}

// TestPubSubBroadcast is Watermill's suite for Pub/Subs without consumer groups, where each Subscribe
// gets all messages. Some of its tests are left out: TestContinueAfterErrors and
// TestNewSubscriberReceivesOldMessages want a Subscribe to get what was published before it, although
// another has got that; so does TestSubscribeCtx, where the first one may have claimed a message before its context ends it
// and its group: TestABroadcastGroupEndsWithItsContext has what holds. TestConsumerGroups wants groups, and
// TestReconnect a server that is restarted.
func TestPubSubBroadcast(t *testing.T) {
	t.Parallel() // it mostly waits
	server := redistest.New(t)
	s := &suite{features: features}
	s.client = func(t *testing.T) redis.UniversalClient { return server.Client(t) }
	s.features.ConsumerGroups, s.features.Persistent = false, false // a group ends with its Subscribe
	s.features.RequireSingleInstance = true                         // several would each get all messages
	broadcasting := func(t *testing.T) (message.Publisher, message.Subscriber) {
		return s.groupPubSub(t, redisdelay.Broadcast)
	}
	for name, test := range map[string]func(*testing.T, tests.TestContext, tests.PubSubConstructor){
		"PublishSubscribe":                  tests.TestPublishSubscribe,
		"ConcurrentSubscribe":               tests.TestConcurrentSubscribe,
		"ConcurrentSubscribeMultipleTopics": tests.TestConcurrentSubscribeMultipleTopics,
		"ResendOnError":                     tests.TestResendOnError,
		"NoAck":                             tests.TestNoAck,
		"ConcurrentClose":                   tests.TestConcurrentClose,
		"PublishSubscribeInOrder":           tests.TestPublishSubscribeInOrder,
		"PublisherClose":                    tests.TestPublisherClose,
		"Topic":                             tests.TestTopic,
		"MessageCtx":                        tests.TestMessageCtx,
	} {
		t.Run(name, func(t *testing.T) {
			test(t, tests.TestContext{TestID: tests.NewTestID(), Features: s.features}, broadcasting)
		})
	}
}
