package delivery

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// distant is a group in a Redis some way off, with many consumers that hear of each other.
type distant struct {
	way time.Duration // there, or back

	mu        sync.Mutex
	published int                          // guarded by mu
	due       []queue.Claimed              // guarded by mu; by due time
	claims    int                          // guarded by mu
	handlers  map[string]queue.HintHandler // guarded by mu; by consumer
}

// publish schedules a message.
func (d *distant) publish(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.published++
	d.due = append(d.due, queue.Claimed{ID: fmt.Sprint(d.published), Token: "1", Attempt: 1, DueAt: time.Now().Add(delay)})
	d.notify("", queue.Hint{In: delay})
}

// claimed is how many claims there were.
func (d *distant) claimed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claims
}

// notify tells the consumers something, except one. The lock is held.
func (d *distant) notify(except string, hint queue.Hint) {
	for consumer, handler := range d.handlers {
		if consumer != except {
			time.AfterFunc(d.way, func() { handler.OnHint(hint) })
		}
	}
}

// remote is the group for a consumer.
type remote struct {
	*fakeGroup
	redis    *distant
	consumer string
}

func (r *remote) Claim(_ context.Context, request queue.Request) (queue.Claims, error) {
	pass(r.redis.way)
	defer pass(r.redis.way)
	d := r.redis
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claims++
	claims := queue.Claims{Next: -1}
	for len(d.due) > 0 && len(claims.Messages) < request.Limit && !d.due[0].DueAt.After(time.Now()) {
		m := d.due[0]
		m.AnsweredAt, m.LeasedUntil = time.Now(), time.Now().Add(request.Lease)
		claims.Messages, d.due = append(claims.Messages, m), d.due[1:]
	}
	if len(d.due) > 0 {
		claims.Next = max(0, time.Until(d.due[0].DueAt))
	}
	if claims.Next != 0 {
		d.notify(r.consumer, queue.Hint{In: claims.Next, Looked: true, Found: len(claims.Messages)})
	}
	return claims, nil
}

type remoteTopic struct {
	*fakeTopic
	group *remote
}

func (t remoteTopic) Group(int) Group { return t.group }

func (t remoteTopic) Listen(_ int, consumer string, handler queue.HintHandler) Listener {
	d := t.group.redis
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handlers[consumer] = handler
	return noListener{}
}

type noListener struct{}

func (noListener) Retry() {}
func (noListener) Close() {}

// crowd runs consumers that handle each message for a while, and returns how to end them, after
// which it knows how late each message was.
func (d *distant) crowd(t *testing.T, consumers int, work time.Duration) (end func() (late []time.Duration)) {
	t.Helper()
	d.handlers = map[string]queue.HintHandler{}
	var mu sync.Mutex
	var late []time.Duration
	var all []*running
	var readers sync.WaitGroup
	for n := range consumers {
		name := fmt.Sprint("c", n)
		g := newFakeGroup(0)
		g.latency = 2 * d.way
		r := runAt(remoteTopic{&fakeTopic{groups: []*fakeGroup{g}}, &remote{g, d, name}}, 1, func(c *Config) {
			c.Consumer, c.PollInterval = name, time.Hour
			decode := c.Decode
			c.Decode = func(ctx context.Context, m queue.Claimed) (*message.Message, time.Time, error) {
				mu.Lock()
				late = append(late, time.Since(m.DueAt))
				mu.Unlock()
				return decode(ctx, m)
			}
		})
		all = append(all, r)
		readers.Go(func() {
			for msg := range r.Messages() {
				pass(work)
				msg.Ack()
			}
		})
	}
	return func() []time.Duration {
		for _, r := range all {
			r.stop()
			require.NoError(t, <-r.ended)
		}
		readers.Wait()
		return late
	}
}

// TestIdleConsumersFarFromRedisDoNotAllClaimTheSameMessage: it takes a while until they hear that
// another one has it.
func TestIdleConsumersFarFromRedisDoNotAllClaimTheSameMessage(t *testing.T) {
	const consumers, messages = 20, 50
	for _, trip := range []time.Duration{200 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond} {
		for name, work := range map[string]time.Duration{"fast handlers": 0, "slow handlers": time.Second} {
			t.Run(fmt.Sprint(trip, ", ", name), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					d := &distant{way: trip / 2}
					end := d.crowd(t, consumers, work)
					pass(time.Second)
					before := d.claimed()
					for range messages {
						d.publish(200 * time.Millisecond)
						pass(500 * time.Millisecond)
					}
					claims := float64(d.claimed()-before) / messages
					pass(time.Minute)
					late := end()
					slices.Sort(late)
					t.Logf("%.1f claims a message, %v late at most, half of them %v", claims, late[messages-1], late[messages/2])
					assert.Len(t, late, messages)
					assert.Less(t, late[messages-1], 300*time.Millisecond)
					limit := 3.0
					if work > 0 { // who would go first is busy, and some of the others set out before they hear of each other
						limit = 0.65 * consumers
					}
					assert.Less(t, claims, limit)
				})
			})
		}
	}
}
