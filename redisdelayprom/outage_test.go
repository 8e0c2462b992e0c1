package redisdelayprom

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestNoGaugeKeepsWhatASubscriptionCouldNotSettle since Redis was away when it ended.
func TestNoGaugeKeepsWhatASubscriptionCouldNotSettle(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	m, registry := newMetrics(t, Config{})
	subscriber := s.Subscriber(func(c *subConfig) {
		c.ConsumerGroup, c.MaxInFlight, c.Observer, c.CloseTimeout = "g", 2, m.Observer(), 100*time.Millisecond
	})
	messages, err := subscriber.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	s.Publish("a")
	a := s.Next(messages)
	s.Publish("b") // claimed, and nobody reads it
	labels := "{group=g,topic=" + s.Topic + "}"
	gauges := func(want ...float64) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			got := shown(t, registry, "")
			assert.Equal(c, want, []float64{got["in_flight_messages"+labels], got["buffered_messages"+labels]})
		}, fixture.Soon, time.Millisecond)
	}
	gauges(1, 1)
	require.NoError(t, server.Down())
	defer server.Up()
	a.Ack()
	_ = subscriber.Close() // not all is settled
	gauges(0, 0)
}
