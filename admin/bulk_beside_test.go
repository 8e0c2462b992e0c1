package admin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// failing is a change of a subscriber's config: a delivery that fails makes a dead message.
func failing(deliveries int) func(*redisdelay.SubscriberConfig) {
	return func(c *redisdelay.SubscriberConfig) {
		c.ConsumerGroup, c.MaxDeliveries, c.MaxInFlight = "g", deliveries, 50
		c.NackDelay = func(int) time.Duration { return 0 }
	}
}

// handle subscribes, and gives all messages to a handler until the test ends.
func (s *scene) handle(handler func(*message.Message), change func(*redisdelay.SubscriberConfig)) {
	s.T.Helper()
	var workers sync.WaitGroup
	s.T.Cleanup(workers.Wait) // after the subscriber is closed
	messages := s.Subscribe(change)
	for range 8 {
		workers.Go(func() {
			for msg := range messages {
				handler(msg)
			}
		})
	}
}

// eventually waits until a query matches so many messages.
func (s *scene) eventually(want int, q Query) {
	s.T.Helper()
	require.EventuallyWithT(s.T, func(c *assert.CollectT) {
		n, err := s.admin.Count(s.T.Context(), s.Topic, q)
		assert.NoError(c, err)
		assert.Equal(c, want, n)
	}, fixture.Soon, 5*time.Millisecond)
}

// TestRequeueAllTerminatesWhileMessagesFailAgain at once: each message is delivered once more, and stays dead after that.
func TestRequeueAllTerminatesWhileMessagesFailAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		const n = 350 // in several steps
		s.deadMessages(partitions, "g", numbered(n)...)
		var mu sync.Mutex
		times := map[string]int{}
		s.handle(func(msg *message.Message) {
			mu.Lock()
			times[string(msg.Payload)]++
			mu.Unlock()
			msg.Nack()
		}, failing(1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := s.admin.Requeue(ctx, s.Topic, Matching(Query{}), func(Progress) {
			// Those of the step fail again before the next one.
			s.eventually(0, Query{Set: Waiting})
			s.eventually(0, Query{Set: InDelivery})
		})
		require.NoError(t, err)
		assert.Equal(t, Progress{Done: n}, got)
		s.eventually(n, Query{Set: Dead})
		mu.Lock()
		defer mu.Unlock()
		assert.Len(t, times, n)
		for payload, count := range times {
			require.Equal(t, 1, count, payload)
		}
	})
}

// TestBulkOperationsWithRunningConsumersLoseNothing: each message is handled or removed by an operation, and none is left.
func TestBulkOperationsWithRunningConsumersLoseNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		const n = 500
		var mu sync.Mutex
		handled, healthy := map[string]bool{}, false // guarded by mu
		s.handle(func(msg *message.Message) {
			mu.Lock()
			well := healthy || rand.N(4) == 0
			if well {
				handled[string(msg.Payload)] = true
			}
			mu.Unlock()
			if well {
				msg.Ack()
			} else {
				msg.Nack()
			}
		}, failing(2))
		var publishing sync.WaitGroup
		publishing.Go(func() {
			keys := numbered(n)
			for i := 0; i < n; i += 50 {
				s.publish(time.Duration(i%7)*20*time.Millisecond, partitions, keys[i:i+50]...)
			}
			s.publish(time.Hour, partitions, "later") // nobody handles it
		})
		all := func(q Query) Selection { return Matching(q) }
		for range 10 {
			for _, err := range []error{
				fixture.ErrOf(s.admin.Reschedule(t.Context(), s.Topic, all(Query{Before: s.Now().Add(time.Minute)}), delay.For(30*time.Millisecond), nil)),
				fixture.ErrOf(s.admin.DeliverNow(t.Context(), s.Topic, all(Query{Set: Waiting}), nil)),
				fixture.ErrOf(s.admin.Bury(t.Context(), s.Topic, all(Query{Set: InDelivery}), "by anna", nil)),
				fixture.ErrOf(s.admin.Bury(t.Context(), s.Topic, all(Query{Set: Waiting}), "by anna", nil)),
				fixture.ErrOf(s.admin.Requeue(t.Context(), s.Topic, all(Query{}), nil)),
			} {
				require.NoError(t, err)
			}
		}
		publishing.Wait()
		mu.Lock()
		healthy = true
		mu.Unlock()
		require.Eventually(t, func() bool {
			_, err := s.admin.Requeue(t.Context(), s.Topic, all(Query{}), nil)
			require.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			return len(handled) == n
		}, 4*fixture.Soon, 20*time.Millisecond)
		got, err := s.admin.Cancel(t.Context(), s.Topic, all(Query{}), nil)
		require.NoError(t, err)
		assert.Equal(t, Progress{Done: 1}, got)
		require.Eventually(t, func() bool { // a handled message may have been buried while its handler was at work
			require.NoError(t, fixture.ErrOf(s.admin.Requeue(t.Context(), s.Topic, all(Query{}), nil)))
			return s.count(Query{Set: Waiting})+s.count(Query{Set: InDelivery})+s.count(Query{Set: Dead}) == 0
		}, fixture.Soon, 20*time.Millisecond)
		s.Settled()
	})
}

// TestBuryEndsTheContextOfTheHandler at its next heartbeat.
func TestBuryEndsTheContextOfTheHandler(t *testing.T) {
	s := newScene(t)
	messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.LeaseDuration = time.Second })
	s.Publish("a")
	msg := s.Next(messages)
	got, err := s.admin.Bury(t.Context(), s.Topic, ByID(fixture.Delivery(t, msg).ID), "by anna", nil)
	require.NoError(t, err)
	assert.Equal(t, Progress{Done: 1}, got)
	s.Ended(msg.Context(), redisdelay.ErrLeaseLost)
	msg.Ack()
	s.eventually(1, Query{Set: Dead, Reason: "by anna"})
}

// recorder keeps the calls of scripts that a client makes.
type recorder struct {
	redistest.Hook
	mu    sync.Mutex
	calls [][]any     // guarded by mu
	seen  func(n int) // told before the n-th call; may be nil
}

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			r.mu.Lock()
			r.calls = append(r.calls, cmd.Args())
			n := len(r.calls)
			r.mu.Unlock()
			if r.seen != nil {
				r.seen(n)
			}
		}
		return next(ctx, cmd)
	}
}

// recording is the scene with an Admin of its own, whose calls are recorded.
func (s *scene) recording(r *recorder) *scene {
	s.T.Helper()
	options := *s.Client.(*redis.Client).Options()
	options.ContextTimeoutEnabled = true // so that it notices the end of a context in the middle of a call
	client := redis.NewClient(&options)
	s.T.Cleanup(func() { assert.NoError(s.T, client.Close()) })
	client.AddHook(r)
	a, err := New(Config{Client: client})
	require.NoError(s.T, err)
	other := *s
	other.admin = a
	return &other
}

// TestACancelledOperationFinishesItsCurrentStep and counts it, whenever the context ends.
func TestACancelledOperationFinishesItsCurrentStep(t *testing.T) {
	const n = 50
	finished := false
	for call := 1; !finished; {
		s := newScene(t)
		s.publish(0, 1, numbered(n)...)
		require.Len(t, s.claim(s.group(0, "g"), "c", n, ""), n)
		ctx, cancel := context.WithCancel(t.Context())
		var ended time.Time
		r := recorder{seen: func(n int) {
			if n == call {
				ended = time.Now()
				cancel()
			}
		}}
		got, err := s.recording(&r).admin.Cancel(ctx, s.Topic, Matching(Query{Set: InDelivery}), nil)
		if !ended.IsZero() && time.Since(ended) >= stepGrace {
			continue // it stood still, and could not finish the step
		}
		if finished = len(r.calls) < call; err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		assert.Equal(t, n-s.count(Query{Set: InDelivery}), got.Done, "the context ended before call %d", call)
		cancel()
		call += 4
	}
}

// TestRepeatedCallsOfAnOperationChangeNothing even if the messages have returned to their earlier state.
func TestRepeatedCallsOfAnOperationChangeNothing(t *testing.T) {
	for name, back := range map[string]func(s *scene){ // brings the messages back
		"requeue": func(s *scene) { s.deadMessages(1, "g") },
		"discard": func(s *scene) { s.arrange("discard", 1, 20) },
		"cancel":  func(s *scene) { s.arrange("cancel", 1, 20) },
		"reschedule": func(s *scene) {
			_, err := s.admin.Reschedule(s.T.Context(), s.Topic, Matching(Query{}), delay.For(3*time.Hour), nil)
			require.NoError(s.T, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.arrange(name, 1, 20)
			var record recorder
			got, err := operations[name](t.Context(), s.recording(&record), Matching(Query{}), nil)
			require.NoError(t, err)
			require.Equal(t, Progress{Done: 20}, got)
			began := s.Now().UnixMilli()
			require.Eventually(t, func() bool { return s.Now().UnixMilli() > began }, fixture.Soon, time.Millisecond)
			back(s)
			s.unchanged(func() {
				for _, call := range record.calls {
					require.NoError(t, s.Client.Do(t.Context(), call...).Err(), fmt.Sprint(call[1]))
				}
			})
			require.NotEmpty(t, record.calls)
		})
	}
}

// TestCancelFollowsMessagesThatAClaimMoves: while Cancel removes messages that no group has yet, a claim of group a moves the other ones
// to the queue of group b, which was empty when Cancel began.
func TestCancelFollowsMessagesThatAClaimMoves(t *testing.T) {
	const n, claimed = 600, 120
	for name, ordered := range map[string]bool{"queue": false, "line": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			var list []*message.Message
			for i := range n {
				msg := message.NewMessage(fmt.Sprint(i), nil)
				if ordered {
					redisdelay.SetOrderingKey(msg, fmt.Sprint("wallet ", i%claimed)) // so that the first of each may be claimed
				}
				list = append(list, msg)
			}
			publisher := s.Publisher()
			require.NoError(t, publisher.Publish(s.Topic, list...))
			a := s.group(0, "a")
			s.group(0, "b")
			held := 0
			got, err := s.admin.Cancel(t.Context(), s.Topic, Matching(Query{Set: Waiting}), func(Progress) {
				if held == 0 {
					held = len(s.claim(a, "c", claimed, ""))
					require.Equal(t, claimed, held)
					require.NotZero(t, s.count(Query{Set: Waiting, Group: "b"}))
				}
			})
			require.NoError(t, err)
			assert.Zero(t, s.count(Query{Set: Waiting}))
			assert.Equal(t, Progress{Done: n}, got)
		})
	}
}
