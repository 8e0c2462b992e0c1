package delivery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// inBatches makes a subscription hand out batches.
func inBatches(size int, handle func([]*message.Message)) func(*Config) {
	return func(c *Config) { c.BatchSize, c.Handle = size, handle }
}

// settle lets time pass and waits until nothing happens any more.
func settle(d time.Duration) {
	pass(d)
	synctest.Wait()
}

func TestASlowBatchHoldsOnlyItsOwnMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(5000)
		g.latency = time.Millisecond
		handled, batches, at, slow := 0, 0, 0, make(chan struct{})
		run(t, g, inBatches(100, func(batch []*message.Message) {
			if batches++; at == 0 && handled >= 3000 {
				at = len(batch)
				<-slow
			}
			handled += len(batch)
			for _, msg := range batch {
				msg.Ack()
			}
		}))
		settle(maxHold + time.Second)
		assert.Less(t, batches, 40, "batches are full while there is a backlog")
		assert.Equal(t, at, g.held(5000, handled), "its own batch only")
		claims := g.claims()
		settle(time.Second)
		assert.Equal(t, claims, g.claims(), "a busy worker claims nothing")
		close(slow)
		settle(time.Second)
		assert.Equal(t, 5000-len(g.released), handled)
	})
}

// TestAllMessagesOfABatchAreHandedOutTogether, so the reported lateness and duration of each message are exact.
func TestAllMessagesOfABatchAreHandedOutTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, w := newFakeGroup(3), &witness{}
		run(t, g, observed(w), inBatches(10, func(batch []*message.Message) {
			assert.Len(t, eventsOf[observe.Delivered](w), 3, "before Handle has them")
			pass(time.Second)
			for _, msg := range batch {
				msg.Ack()
			}
		}))
		settle(5 * time.Second)
		handed, settled := eventsOf[observe.Delivered](w), eventsOf[observe.Settled](w)
		assert.Len(t, settled, 3)
		for i := range handed {
			assert.Equal(t, handed[0].Lateness, handed[i].Lateness)
			assert.Equal(t, time.Second, settled[i].Took)
		}
	})
}

func TestAMessageEndedInRedisIsNotAckedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(3)
		r := run(t, g, inBatches(10, func(batch []*message.Message) {
			for i, msg := range batch {
				h, ok := BatchMessageOf(msg.Context())
				assert.True(t, ok)
				assert.Equal(t, msg.UUID, h.Delivery().ID)
				if i == 0 {
					h.Settled(false)
				}
				msg.Ack()
			}
		}))
		settle(time.Second)
		assert.Equal(t, []string{"0001", "0002"}, g.acked)
		r.end(t)
		settle(testLease)
		assert.Empty(t, g.heldLast)
	})
}

// TestAnUndeliveredBatchIsReleasedOnStop: the subscription stops while the messages are decoded.
func TestAnUndeliveredBatchIsReleasedOnStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, goOn := newFakeGroup(2), make(chan struct{})
		r := run(t, g, inBatches(2, func(batch []*message.Message) { assert.Empty(t, batch) }), func(c *Config) {
			decode := c.Decode
			c.Decode = func(ctx context.Context, m queue.Claimed) (*message.Message, time.Time, error) {
				<-goOn
				return decode(ctx, m)
			}
		})
		settle(time.Second)
		r.stop()
		synctest.Wait()
		close(goOn)
		require.NoError(t, <-r.ended)
		assert.Len(t, g.released, 2)
		assert.Empty(t, g.nacked)
	})
}

// TestAnExpiredMessageIsNotDroppedWithoutItsLease: another consumer may have handed the message out before it expired.
func TestAnExpiredMessageIsNotDroppedWithoutItsLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		g.setHook(failing("extend", errDown))
		run(t, g, expiring("0000", time.Now().Add(testLease+time.Second)), slowDecode("0000", testLease+2*time.Second),
			func(c *Config) { c.DropExpired = true }, inBatches(1, func([]*message.Message) {}))
		settle(2 * testLease)
		assert.Empty(t, g.acked)
		assert.Len(t, g.released, 1, "which Redis refuses if another consumer has it")
	})
}

// TestABatchExcludesMessagesWithLostLeases: the first lease is lost while the second message is decoded.
func TestABatchExcludesMessagesWithLostLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2)
		g.setHook(failing("extend", errDown))
		r := run(t, g, slowDecode("0001", testLease), inBatches(2, func(batch []*message.Message) { assert.Empty(t, batch) }))
		settle(testLease + time.Second)
		g.view(func() { assert.Len(t, g.released, 2) })
		r.end(t)
		assert.Zero(t, r.buffer.waiting.Load())
		assert.Zero(t, r.partitions[0].settler.releasing.Load())
	})
}

func TestAHangingBatchIsNackedAfterCloseTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2)
		var causes []error
		never := make(chan struct{})
		r := run(t, g, inBatches(10, func(batch []*message.Message) {
			batch[0].Ack()
			<-batch[1].Context().Done()
			causes = append(causes, context.Cause(batch[1].Context()))
			<-never
		}))
		settle(time.Second)
		r.stop()
		start := time.Now()
		require.NoError(t, <-r.ended)
		assert.Equal(t, testCloseTimeout, time.Since(start))
		assert.Equal(t, []string{"0000"}, g.acked)
		require.Len(t, g.nacked, 1)
		assert.Equal(t, "0001", g.nacked[0].ID)
		close(never)
		synctest.Wait()
		assert.Equal(t, []error{ErrCloseTimeout}, causes)
	})
}
