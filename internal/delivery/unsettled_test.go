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

// TestUnsentSettlementsAreReportedAsUnsettled whatever the settlement is, and whether or not a handler had the message.
func TestUnsentSettlementsAreReportedAsUnsettled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(5)
		g.setHook(func(call string) error {
			if call == "claim" {
				return nil
			}
			return errDown
		})
		w := &witness{}
		r := run(t, g, observed(w), garbled("0003"), func(c *Config) { c.MaxInFlight = 5 })
		acked, nacked, open := <-r.Messages(), <-r.Messages(), <-r.Messages() // in any order
		acked.Ack()
		nacked.Nack()
		pass(time.Second)
		r.stop()
		require.ErrorIs(t, <-r.ended, errUnsettled)
		synctest.Wait()
		settled, had := eventsOf[observe.Settled](w), map[string]bool{}
		for _, e := range settled {
			assert.Equal(t, observe.Unsettled, e.Settlement)
			had[e.ID] = e.Took > 0
		}
		assert.Len(t, settled, 5, "each once")
		want := map[string]bool{"0000": false, "0001": false, "0002": false, "0003": false, "0004": false}
		for _, msg := range []*message.Message{acked, nacked, open} {
			want[msg.UUID] = true
		}
		assert.Equal(t, want, had)
	})
}

// TestASettlementAfterTheEndIsReportedAsUnsettled: the decoder returns after the subscription has stopped.
func TestASettlementAfterTheEndIsReportedAsUnsettled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		w, decoded := &witness{}, make(chan struct{})
		r := run(t, g, observed(w), func(c *Config) {
			c.Decode = func(context.Context, queue.Claimed) (*message.Message, time.Time, error) {
				<-decoded
				return nil, time.Time{}, errGarbage
			}
		})
		pass(time.Second)
		r.stop()
		require.ErrorIs(t, <-r.ended, errUnsettled)
		synctest.Wait()
		require.Empty(t, eventsOf[observe.Settled](w))
		close(decoded)
		synctest.Wait()
		assert.Equal(t, []observe.Settled{{Place: place, ID: "0000", Token: 7, Settlement: observe.Unsettled}}, eventsOf[observe.Settled](w))
	})
}
