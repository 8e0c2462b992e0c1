package redisdelayotel

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

func keyOf(token int64) deliveryKey { return deliveryKey{"t", "g", "a", token} }

func (h *handlings) has(token int64) bool {
	_, ok := h.get(keyOf(token))
	return ok
}

func TestTheHandlingThatEndedFirstIsForgottenBeyondTheLimit(t *testing.T) {
	var h handlings
	for token := range int64(6) {
		h.put(handled{key: keyOf(token)})
		h.put(handled{key: keyOf(token)}) // handled again by a retry
	}
	for _, token := range []int64{1, 0, 2, 3} {
		h.end(keyOf(token), 3)
	}
	assert.False(t, h.has(1), "it ended first")
	for _, token := range []int64{0, 2, 3, 4, 5} { // two of them have not ended, and do not count
		assert.True(t, h.has(token))
		_, ok := h.take(keyOf(token))
		assert.True(t, ok)
		h.end(keyOf(token), 3) // as after an Ack within the handler
	}
	assert.Zero(t, h.ended.Len())
	assert.Empty(t, h.open)
}

func TestAHandlingThatEndsAgainIsKeptOnce(t *testing.T) {
	var h handlings
	for range 3 { // by a retry
		h.put(handled{key: keyOf(1)})
		h.end(keyOf(1), 1)
		h.end(keyOf(1), 1) // it was within another one of the same delivery
	}
	assert.True(t, h.has(1))
	assert.Equal(t, 1, h.ended.Len())
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
		assert.Equal(t, kept, telemetry.handlings.ended.Len())
		telemetry.Observer()
	}
}

func TestWithoutAGlobalPropagatorTheUsualOneIsUsed(t *testing.T) {
	set := propagation.NewCompositeTextMapPropagator() // as before a program sets one
	p := globalPropagator{func() propagation.TextMapPropagator { return set }}
	assert.ElementsMatch(t, []string{"traceparent", "tracestate", "baggage"}, p.Fields())
	set = propagation.NewCompositeTextMapPropagator(propagation.Baggage{})
	assert.Equal(t, []string{"baggage"}, p.Fields())
}
