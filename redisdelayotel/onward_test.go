package redisdelayotel_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	redisdelayotel "github.com/redisdelay/watermill-redisdelay/redisdelayotel"
)

// onward handles the next message by a function and publishes what that returns to a second
// topic, as a Router does.
func (w *watched) onward(do message.HandlerFunc) {
	w.T.Helper()
	msg := w.Next(w.Subscribe())
	produced, err := w.telemetry.Middleware(do)(msg)
	require.NoError(w.T, err)
	require.NoError(w.T, w.telemetry.Publisher(w.Publisher()).Publish(w.Topic+"/second", produced...))
	msg.Ack()
}

// received handles the next message of the second topic.
func (w *watched) received(do func(*message.Message)) {
	w.T.Helper()
	require.NoError(w.T, w.handle(w.Beside("/second").Subscribe(), func(msg *message.Message) error {
		do(msg)
		return nil
	}))
}

func copied(msg *message.Message) ([]*message.Message, error) {
	return []*message.Message{msg.Copy()}, nil
}

func created(*message.Message) ([]*message.Message, error) {
	return []*message.Message{message.NewMessage("b", nil)}, nil
}

func TestAReturnedCopyIsLinkedToTheHandlingThatReturnedIt(t *testing.T) {
	w := watch(t)
	w.send(message.NewMessage("a", nil))
	w.onward(copied)
	w.received(func(*message.Message) {})
	w.chained(w.Topic, w.Topic+"/second")
	send := w.one("send " + w.Topic + "/second")
	assert.Equal(t, trace.SpanKindProducer, send.SpanKind)
	assert.Empty(t, send.Links)
}

func TestAReturnedMessageKeepsASpanOfItsOwn(t *testing.T) {
	w := watch(t)
	w.send(message.NewMessage("a", nil))
	w.onward(func(msg *message.Message) ([]*message.Message, error) {
		ctx, own := w.tracer.Start(msg.Context(), "own")
		own.End()
		return []*message.Message{message.NewMessageWithContext(ctx, "b", nil)}, nil
	})
	w.childOf(w.one("own"), "send "+w.Topic+"/second")
}

func TestAStaleTracestateIsNotPublished(t *testing.T) {
	w := watch(t)
	given := message.NewMessage("a", nil)
	given.Metadata.Set("traceparent", "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01")
	given.Metadata.Set("tracestate", "vendor=1")
	w.send(given)
	w.onward(func(msg *message.Message) ([]*message.Message, error) {
		assert.Equal(t, "vendor=1", msg.Metadata.Get("tracestate"))
		return copied(msg)
	})
	w.received(func(msg *message.Message) { assert.NotContains(t, msg.Metadata, "tracestate") })
}

// forTenant is a context with baggage.
func forTenant(t *testing.T, tenant string) context.Context {
	t.Helper()
	bag, err := baggage.Parse("tenant=" + tenant)
	require.NoError(t, err)
	return baggage.ContextWithBaggage(context.Background(), bag)
}

func tenantOf(msg *message.Message) string {
	return baggage.FromContext(msg.Context()).Member("tenant").Value()
}

func TestBaggageReachesHandlersOverTwoHops(t *testing.T) {
	for name, changes := range map[string][]func(*redisdelayotel.Config){
		"with traces":    nil,
		"without traces": {func(c *redisdelayotel.Config) { c.TracerProvider = noop.NewTracerProvider() }},
	} {
		for kind, do := range map[string]message.HandlerFunc{"new": created, "copied": copied} {
			t.Run(name+", "+kind, func(t *testing.T) {
				w := watch(t, changes...)
				w.send(message.NewMessageWithContext(forTenant(t, "7"), "a", nil))
				w.onward(func(msg *message.Message) ([]*message.Message, error) {
					assert.Equal(t, "7", tenantOf(msg))
					return do(msg)
				})
				w.received(func(msg *message.Message) { assert.Equal(t, "7", tenantOf(msg)) })
			})
		}
	}
}

func TestAReturnedMessageKeepsBaggageOfItsOwn(t *testing.T) {
	w := watch(t)
	w.send(message.NewMessageWithContext(forTenant(t, "7"), "a", nil))
	w.onward(func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessageWithContext(forTenant(t, "8"), "b", nil)}, nil
	})
	w.received(func(msg *message.Message) { assert.Equal(t, "8", tenantOf(msg)) })
}
