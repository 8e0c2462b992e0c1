package delivery

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// TestMessagesThatAlwaysFailHoldUpNoOthers lets one message of ten fail, again and again.
func TestMessagesThatAlwaysFailHoldUpNoOthers(t *testing.T) {
	const count, retryIn = 1000, 100 * time.Millisecond
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		g.latency = time.Millisecond
		ready := func(change func()) {
			change()
			select {
			case g.hints <- 0:
			default: // one is on its way
			}
		}
		bad := func(id string) bool { return id[3] == '0' }
		good, failures := make(chan observe.HandedOut, count), atomic.Int64{}
		r := run(g, func(c *Config) {
			c.MaxInFlight = 10
			c.Observer.HandedOut = func(e observe.HandedOut) {
				if !bad(e.ID) {
					good <- e
				}
			}
		})
		fail := func(msg *message.Message) {
			failures.Add(1)
			msg.Nack()
			time.AfterFunc(retryIn, func() { ready(func() { g.again(msg.UUID) }) })
		}
		go func() { // ends with the subscription
			for msg := range r.Messages() {
				if bad(msg.UUID) {
					time.AfterFunc(time.Millisecond, func() { fail(msg) })
					continue
				}
				time.AfterFunc(time.Millisecond, func() { msg.Ack() })
			}
		}()
		for range count {
			ready(func() { g.add(1) })
			pass(5 * time.Millisecond)
		}
		for range count * 9 / 10 {
			e := <-good
			require.LessOrEqual(t, e.Late, 10*time.Millisecond, e.ID)
		}
		assert.Greater(t, failures.Load(), int64(count/10*5))
		r.end(t)
		pass(retryIn)
	})
}
