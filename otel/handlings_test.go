package redisdelayotel

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/propagation"
)

func TestTheOldestHandlingIsForgottenBeyondTheLimit(t *testing.T) {
	var h handlings
	key := func(token int64) deliveryKey { return deliveryKey{"t", "g", "a", token} }
	for token := range int64(4) {
		h.put(handled{key: key(token)}, 3)
		h.put(handled{key: key(token)}, 3) // handled again by a retry
	}
	assert.Equal(t, 3, h.order.Len())
	assert.Len(t, h.open, 3)
	_, ok := h.take(key(0))
	assert.False(t, ok, "the oldest")
	for token := int64(1); token < 4; token++ {
		_, ok = h.get(key(token))
		assert.True(t, ok)
		_, ok = h.take(key(token))
		assert.True(t, ok)
	}
	assert.Zero(t, h.order.Len())
	assert.Empty(t, h.open)
}

func TestWithoutAGlobalPropagatorTheUsualOneIsUsed(t *testing.T) {
	set := propagation.NewCompositeTextMapPropagator() // as before a program sets one
	p := globalPropagator{func() propagation.TextMapPropagator { return set }}
	assert.ElementsMatch(t, []string{"traceparent", "tracestate", "baggage"}, p.Fields())
	set = propagation.NewCompositeTextMapPropagator(propagation.Baggage{})
	assert.Equal(t, []string{"baggage"}, p.Fields())
}
