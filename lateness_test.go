package redisdelay

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

func TestLatenessIsMeasuredByTheClockOfRedis(t *testing.T) {
	body, err := DefaultMarshaler{}.Marshal("t", message.NewMessage("a", nil))
	require.NoError(t, err)
	config := SubscriberConfig{LeaseDuration: 10 * time.Second, Unmarshaler: DefaultMarshaler{}}
	for name, offset := range map[string]time.Duration{"behind": -time.Hour, "ahead": time.Hour} {
		arrived := time.Now()
		leased := arrived.Add(offset) // by Redis's clock
		msg, _, err := (&codec{config: &config}).decode(t.Context(), queue.Claimed{
			Body: body, DueAt: leased.Add(-5 * time.Second), AnsweredAt: leased, LeasedUntil: leased.Add(10 * time.Second), ArrivedAt: arrived,
		})
		require.NoError(t, err)
		d, _ := DeliveryFromContext(msg.Context())
		late := d.Lateness()
		assert.GreaterOrEqual(t, late, 5*time.Second, name)
		assert.LessOrEqual(t, late, 5*time.Second+time.Since(arrived), name)
	}
	assert.Zero(t, Delivery{}.Lateness())
}
