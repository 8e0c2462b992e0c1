package redisdelayotel

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

func TestTheOldestHandlingIsDroppedBeyondTheLimit(t *testing.T) {
	var h handlings
	begun := func(token int64) *handling { return &handling{delivery: redisdelay.Delivery{ID: "a", Token: token}} }
	for token := range int64(maxHandlings + 1) {
		h.put(begun(token))
		h.put(begun(token)) // handled again by a retry
	}
	assert.Len(t, h.open, maxHandlings)
	_, ok := h.get(begun(0).key())
	assert.False(t, ok)
	for token := range int64(maxHandlings) {
		_, ok := h.take(begun(token + 1).key())
		require.True(t, ok)
	}
	assert.Empty(t, h.open)
	assert.Zero(t, h.order.Len())
}

// A subscription without the Observer reports no settlement, so its handlings are left over.
func TestHandlingsAreKeptOnlyForAnObserver(t *testing.T) {
	s := fixture.New(t)
	telemetry, err := New(Config{})
	require.NoError(t, err)
	messages := s.Subscribe()
	handler := telemetry.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	for _, kept := range []int{0, 1} {
		s.Publish("a")
		msg := s.Next(messages)
		_, err := handler(msg)
		require.NoError(t, err)
		msg.Ack()
		assert.Len(t, telemetry.handlings.open, kept)
		telemetry.Observer()
	}
}

func TestTheGlobalPropagatorIsUsedIfItIsSet(t *testing.T) {
	for _, c := range []struct {
		global propagation.TextMapPropagator
		want   []string
	}{
		{propagation.NewCompositeTextMapPropagator(), []string{"traceparent", "tracestate", "baggage"}}, // as before a program sets one
		{propagation.Baggage{}, []string{"baggage"}},
	} {
		before := otel.GetTextMapPropagator()
		otel.SetTextMapPropagator(c.global)
		telemetry, err := New(Config{})
		otel.SetTextMapPropagator(before)
		require.NoError(t, err)
		assert.ElementsMatch(t, c.want, telemetry.propagator.Fields())
	}
}
