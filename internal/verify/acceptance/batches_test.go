package acceptance

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestLargeBatchesStayBelowTheArgumentLimit of a server that allows few: the scene counts them.
func TestLargeBatchesStayBelowTheArgumentLimit(t *testing.T) {
	const count = 2000
	s := fixture.New(t)
	subscriber := s.Subscriber(func(c *subConfig) { c.MaxDeliveries = 2 })
	nacked, acked, done := map[string]bool{}, 0, make(chan struct{})
	require.NoError(t, subscriber.SubscribeBatches(t.Context(), s.Topic, 1000, func(batch []*message.Message) {
		for _, msg := range batch {
			if !nacked[msg.UUID] {
				nacked[msg.UUID] = true
				msg.Nack()
				continue
			}
			msg.Ack()
			if acked++; acked == count {
				close(done)
			}
		}
	}))
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.DeduplicationWindow = 1e9 })
	var list []*message.Message
	for i := range count {
		msg := message.NewMessage(fmt.Sprint(i), nil)
		redisdelay.SetKey(msg, msg.UUID)
		list = append(list, msg)
	}
	require.NoError(t, p.Publish(s.Topic, list...))
	fixture.Wait(t, done, "all come twice")
	require.NoError(t, subscriber.Close())
}
