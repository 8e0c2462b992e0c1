package delivery

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// slowDecode makes the decoding of one message take this long.
func slowDecode(id string, d time.Duration) func(*Config) {
	return func(c *Config) {
		decode := c.Decode
		c.Decode = func(ctx context.Context, m queue.Claimed) (*message.Message, error) {
			if m.ID == id {
				pass(d)
			}
			return decode(ctx, m)
		}
	}
}

// nothingComes asserts that no message is on offer.
func nothingComes(t *testing.T, r *running) {
	t.Helper()
	select {
	case msg := <-r.Messages():
		assert.Fail(t, "a message was handed out", msg.UUID)
	default:
	}
}

func TestWhatExpiresWhileItIsDecodedIsNotHandedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		g.ready[0].ExpiresAt = time.Now().Add(time.Second)
		r := run(g, slowDecode("0000", 2*time.Second))
		settle(3 * time.Second)
		nothingComes(t, r)
		g.view(func() {
			require.Len(t, g.buried, 1)
			assert.Equal(t, "expired", g.buried[0].Reason)
		})
		g.add(1)
		g.hints <- 0
		(<-r.Messages()).Ack()
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Equal(t, []string{"0001"}, g.acked)
		assert.Zero(t, r.buffer.waiting.Load())
	})
}

func TestWhatExpiresWhileItsBatchIsDecodedIsNotHandedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2)
		g.ready[0].ExpiresAt = time.Now().Add(time.Second)
		var handled []string
		r := run(g, slowDecode("0001", 2*time.Second), inBatches(2, func(batch []*message.Message) {
			for _, msg := range batch {
				handled = append(handled, msg.UUID)
				msg.Ack()
			}
		}))
		settle(3 * time.Second)
		assert.Equal(t, []string{"0001"}, handled)
		r.stop()
		require.NoError(t, <-r.ended)
		require.Len(t, g.buried, 1)
		assert.Equal(t, "0000", g.buried[0].ID)
		assert.Zero(t, r.buffer.waiting.Load())
	})
}

// TestWhatExpiresOnOfferIsGivenBack to be ended with the next claim, which comes as late as after any offer that
// nobody has accepted in time.
func TestWhatExpiresOnOfferIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		ends := time.Now().Add(maxHold / 2)
		g.ready[0].ExpiresAt = ends
		r := run(g)
		settle(time.Until(ends) + time.Millisecond)
		nothingComes(t, r)
		g.view(func() {
			require.Len(t, g.released, 1)
			g.ready = append(g.ready, queue.Claimed{ID: "0000", Token: "2", Attempt: 1, ExpiresAt: ends})
		})
		g.add(1)
		claims := g.claims()
		settle(unreadPause / 2)
		assert.Equal(t, claims, g.claims(), "it waits before it looks for a reader")
		assert.Equal(t, "0001", (<-r.Messages()).UUID)
		settle(0) // the other one is settled by another goroutine
		g.view(func() { assert.Len(t, g.buried, 1) })
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Zero(t, r.buffer.waiting.Load())
		assert.False(t, r.partitions[0].settler.hasReleases())
	})
}
