package delivery

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

func TestFailedSettlementsAreSentAgainAndHoldUpNoOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(3)
		g.setHook(func(call string) error {
			if call == "ack" {
				return errAway
			}
			return nil
		})
		r := run(g)
		(<-r.Messages()).Ack()
		(<-r.Messages()).Nack()
		pass(5 * time.Second)
		g.view(func() {
			assert.Empty(t, g.acked)
			assert.Len(t, g.nacked, 1)
		})
		g.setHook(nil)
		pass(5 * time.Second)
		g.view(func() { assert.Equal(t, []string{"0000"}, g.acked) })
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestClaimsPauseWhileAcksPileUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(10_000)
		g.setHook(func(call string) error {
			if call == "ack" {
				return errAway
			}
			return nil
		})
		r := run(g)
		var handled atomic.Int64
		go func() {
			for msg := range r.Messages() {
				handled.Add(1)
				msg.Ack()
			}
		}()
		pass(20 * time.Second)
		assert.LessOrEqual(t, handled.Load(), int64(6*maxClaim))
		g.setHook(nil)
		pass(20 * time.Second)
		assert.EqualValues(t, 10_000, handled.Load())
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Len(t, g.acked, 10_000)
	})
}

func TestAMessageThatCannotBeDecodedIsBuried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2)
		r := run(g, func(c *Config) {
			decode := c.Decode
			c.Decode = func(ctx context.Context, m queue.Claimed) (*message.Message, time.Time, error) {
				if m.ID == "0000" {
					return nil, time.Time{}, errors.New("garbage")
				}
				return decode(ctx, m)
			}
		})
		msg := <-r.Messages()
		assert.Equal(t, "0001", msg.UUID)
		msg.Ack()
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Equal(t, []queue.Burial{{Delivery: queue.Delivery{ID: "0000", Token: "1"}, Reason: "cannot decode: garbage"}}, g.buried)
	})
}

func TestWhoMakesRoomClaimsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		g.scarce = true
		r := run(g)
		msg := <-r.Messages()
		pass(time.Second)
		g.add(1)
		msg.Ack()
		pass(time.Millisecond)
		select {
		case msg := <-r.Messages():
			msg.Ack()
		default:
			t.Fatal("nothing was claimed")
		}
		r.stop()
		require.NoError(t, <-r.ended)
	})
}
