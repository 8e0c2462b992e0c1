package delivery

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
)

// TestAPauseDuringALookForAReaderStallsNothing: the claim that looks for a reader finds a message, which a pause voids.
func TestAPauseDuringALookForAReaderStallsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		g.latency, g.returns = 50*time.Millisecond, true
		r := run(g)
		for g.claims() < 2 { // the first message was offered, and nobody took it
			pass(time.Millisecond)
		}
		g.paused <- struct{}{}
		pass(time.Second)
		select {
		case msg := <-r.Messages():
			msg.Ack()
		case <-time.After(time.Minute):
			t.Error("the message does not come to a reader")
		}
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

// TestAReaderIsAlwaysLookedFor: whatever happens, something will look for a reader while nobody reads, and in the end one
// gets all messages.
func TestAReaderIsAlwaysLookedFor(t *testing.T) {
	for seed := range uint64(150) {
		bubble(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			g := newFakeGroup(1 + random.IntN(4))
			g.latency, g.returns = time.Duration(random.IntN(100))*time.Millisecond, true
			r := run(g, func(c *Config) { c.MaxInFlight = 1 + random.IntN(3) })
			var reading []*message.Message
			start := time.Now()
			for range 200 {
				pass(time.Duration(random.IntN(60)) * time.Millisecond)
				require.Falsef(t, r.buffer.stalled(), "seed %d: nothing looks for a reader", seed)
				reading = disturb(random, g, r, reading)
			}
			for _, msg := range reading {
				msg.Ack()
			}
			for acked, added := 0, 1; acked < added; g.view(func() { acked, added = len(g.acked), g.added }) {
				select {
				case msg := <-r.Messages():
					msg.Ack()
				case <-time.After(time.Second):
				}
				require.Lessf(t, time.Since(start), time.Minute, "seed %d: messages do not come to a reader", seed)
			}
			r.stop()
			require.NoError(t, <-r.ended)
		})
	}
}

// disturb does something that may void a claim, or stop or wake a reader. It returns what the reader has.
func disturb(random *rand.Rand, g *fakeGroup, r *running, reading []*message.Message) []*message.Message {
	switch random.IntN(6) {
	case 0:
		signal(g.paused)
	case 1:
		g.add(1)
		select {
		case g.hints <- 0:
		default:
		}
	case 2:
		select {
		case msg := <-r.Messages():
			return append(reading, msg)
		default:
		}
	case 3:
		if len(reading) > 0 {
			reading[0].Ack()
			return reading[1:]
		}
	}
	return reading
}

// stalled tells whether nobody reads, and nothing will ever look for a reader.
func (b *buffer) stalled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.budget.unread.Load() || b.budget.probe || b.budget.reserved > 0 || b.budget.retry != nil || b.closed {
		return false
	}
	return !slices.ContainsFunc(b.workers, func(w *worker) bool { return w.stage.Load() != recalled })
}
