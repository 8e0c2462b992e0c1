package delivery

import (
	"context"
	"fmt"
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
		c.Decode = func(ctx context.Context, m queue.Claimed) (*message.Message, time.Time, error) {
			if m.ID == id {
				pass(d)
			}
			return decode(ctx, m)
		}
	}
}

// expiring makes a message expire at a time by Redis's clock.
func expiring(id string, at time.Time) func(*Config) {
	return func(c *Config) {
		decode := c.Decode
		c.Decode = func(ctx context.Context, m queue.Claimed) (*message.Message, time.Time, error) {
			msg, expiresAt, err := decode(ctx, m)
			if m.ID == id {
				expiresAt = at
			}
			return msg, expiresAt, err
		}
	}
}

// allExpiring makes the first messages expire at a time by Redis's clock.
func allExpiring(count int, at time.Time) func(*Config) {
	return func(c *Config) {
		for n := range count {
			expiring(fmt.Sprintf("%04d", n), at)(c)
		}
	}
}

// expectNoMessage asserts that no message is on offer.
func expectNoMessage(t *testing.T, r *running) {
	t.Helper()
	select {
	case msg := <-r.Messages():
		assert.Fail(t, "a message was handed out", msg.UUID)
	default:
	}
}

func TestMessagesExpireByTheClockOfRedis(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g, now := newFakeGroup(2), time.Now().Add(ahead)
				g.clock = ahead
				r := run(t, g, expiring("0000", now), expiring("0001", now.Add(time.Millisecond)))
				select {
				case msg := <-r.Messages():
					assert.Equal(t, "0001", msg.UUID)
					msg.Ack()
				case <-time.After(time.Second):
					assert.Fail(t, "no message is handed out")
				}
				r.end(t)
				assert.Equal(t, []queue.Burial{{Delivery: queue.Delivery{ID: "0000", Receipt: "1"}, Reason: "expired"}}, g.buried)
				assert.Zero(t, r.buffer.waiting.Load())
			})
		})
	}
}

func TestExtremeExpirationTimesAreSupported(t *testing.T) {
	for at, expired := range map[time.Time]bool{time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC): true, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC): false} {
		bubble(t, func(t *testing.T) {
			g := newFakeGroup(1)
			run(t, g, expiring("0000", at))
			settle(maxHold / 2)
			g.view(func() { assert.Equal(t, expired, len(g.buried) == 1) })
		})
	}
}

func TestAMessageThatExpiresWhileDecodedIsNotHandedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		r := run(t, g, expiring("0000", time.Now().Add(time.Second)), slowDecode("0000", 2*time.Second))
		settle(3 * time.Second)
		expectNoMessage(t, r)
		g.view(func() {
			require.Len(t, g.buried, 1)
			assert.Equal(t, "expired", g.buried[0].Reason)
		})
		g.add(1)
		g.hints <- 0
		(<-r.Messages()).Ack()
		r.end(t)
		assert.Equal(t, []string{"0001"}, g.acked)
		assert.Zero(t, r.buffer.waiting.Load())
	})
}

func TestAMessageThatExpiresDuringBatchDecodingIsNotHandedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2)
		var handled []string
		r := run(t, g, expiring("0000", time.Now().Add(time.Second)), slowDecode("0001", 2*time.Second), inBatches(2, func(batch []*message.Message) {
			for _, msg := range batch {
				handled = append(handled, msg.UUID)
				msg.Ack()
			}
		}))
		settle(3 * time.Second)
		assert.Equal(t, []string{"0001"}, handled)
		r.end(t)
		require.Len(t, g.buried, 1)
		assert.Equal(t, "0000", g.buried[0].ID)
		assert.Zero(t, r.buffer.waiting.Load())
	})
}

// TestAMessageThatExpiresWhileOfferedIsReleased: the next claim buries it. That claim is as late as after any offer that no
// reader has accepted in time.
func TestAMessageThatExpiresWhileOfferedIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		ends := time.Now().Add(maxHold / 2)
		r := run(t, g, expiring("0000", ends))
		settle(time.Until(ends) + time.Millisecond)
		expectNoMessage(t, r)
		g.view(func() {
			require.Len(t, g.released, 1)
			g.ready = append(g.ready, queue.Claimed{ID: "0000", Receipt: "2", Attempt: 1})
		})
		g.add(1)
		claims := g.claims()
		settle(unreadPause / 2)
		assert.Equal(t, claims, g.claims(), "it waits before it looks for a reader")
		assert.Equal(t, "0001", (<-r.Messages()).UUID)
		settle(0) // the other one is settled by another goroutine
		g.view(func() { assert.Len(t, g.buried, 1) })
		r.end(t)
		assert.Zero(t, r.buffer.waiting.Load())
		assert.Zero(t, r.partitions[0].settler.releasing.Load())
	})
}

// TestExpiredMessagesDoNotDelayLaterMessages even if no reader is known, because they are claimed in batches.
func TestExpiredMessagesDoNotDelayLaterMessages(t *testing.T) {
	const count = 1000
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		ends := time.Now().Add(maxHold / 2)
		r := run(t, g, allExpiring(count, ends))
		settle(time.Until(ends) + time.Millisecond)
		require.True(t, r.buffer.budget.unread.Load())
		g.add(count)
		claims := g.claims()
		assert.Equal(t, fmt.Sprintf("%04d", count), (<-r.Messages()).UUID)
		assert.Less(t, g.claims()-claims, count/2)
	})
}
