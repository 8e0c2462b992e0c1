package redisdelayotel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const retryIn = "messaging.redisdelay.retry_in"

var errEarly, errBusy = errors.New("not ready"), errors.New("busy")

// journey runs a message through a delay, a nack, DelayOnError and a handler
// that publishes to a second topic.
func journey(w *watched) {
	second := w.Beside("/second")
	router := w.router()
	attempts := 0
	router.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if message.HandlerNameFromCtx(msg.Context()) == "first" {
				if attempts++; attempts == 1 {
					return nil, errEarly // DelayOnError does not see it
				}
			}
			return next(msg)
		}
	}, (&middleware.DelayOnError{InitialInterval: 200 * time.Millisecond, MaxInterval: 700 * time.Millisecond, Multiplier: 2}).Middleware)
	atOnce := func(c *redisdelay.SubscriberConfig) { c.NackDelay = func(int) time.Duration { return 0 } }
	router.AddHandler("first", w.Topic, w.Subscriber(w.observed, atOnce), second.Topic, w.Publisher(),
		func(msg *message.Message) ([]*message.Message, error) {
			if attempts == 2 {
				return nil, errBusy
			}
			_, inner := w.tracer.Start(msg.Context(), "work")
			inner.End()
			return []*message.Message{message.NewMessage("b", []byte("onward"))}, nil
		})
	router.AddConsumerHandler("second", second.Topic, w.Subscriber(w.observed), func(*message.Message) error { return nil })
	w.running(router)

	ctx, checkout := w.tracer.Start(context.Background(), "checkout")
	msg := message.NewMessageWithContext(ctx, "a", []byte("order 7"))
	middleware.SetCorrelationID("shop-1", msg)
	delay.Message(msg, delay.For(300*time.Millisecond))
	require.NoError(w.T, w.telemetry.Publisher(w.Publisher()).Publish(w.Topic, msg))
	checkout.End()
}

func TestTracesFollowAMessageThroughDelayNacksAndASecondTopic(t *testing.T) {
	w := watch(t)
	journey(w)
	w.one("ack " + w.Topic + "/second")

	send := w.one("send " + w.Topic)
	assert.Equal(t, id(w.one("checkout")), send.Parent.SpanID())
	assert.Equal(t, trace.SpanKindProducer, send.SpanKind)
	assert.Empty(t, send.Links)
	assert.Equal(t, map[string]any{
		"messaging.system": "redisdelay", "messaging.operation.name": "send", "messaging.operation.type": "send",
		"messaging.destination.name": w.Topic, "messaging.message.id": "a", "messaging.message.body.size": int64(7),
		"messaging.message.conversation_id": "shop-1", "messaging.redisdelay.message.delay": 0.3,
	}, attrs(send))

	handlings := w.named("process "+w.Topic, 3)
	for i, settled := range []string{"nack", "nack", "ack"} {
		handlingIsLinked(t, handlings[i], send)
		got := attrs(handlings[i])
		assert.Equal(t, int64(i+1), got["messaging.redisdelay.message.delivery_attempt"])
		due := dueAt(t, handlings[i])
		assert.False(t, handlings[i].StartTime.Before(due), "handling %d began at %s and was due at %s", i, handlings[i].StartTime, due)
		settlement := w.childOf(handlings[i], settled+" "+w.Topic)
		assert.Equal(t, trace.SpanKindClient, settlement.SpanKind)
		assert.False(t, settlement.StartTime.Before(handlings[i].StartTime))
		assert.Equal(t, got["messaging.redisdelay.message.id"], attrs(settlement)["messaging.redisdelay.message.id"])
	}
	assert.GreaterOrEqual(t, dueAt(t, handlings[0]).Sub(send.StartTime), 299*time.Millisecond, "due times are in milliseconds")
	assert.Equal(t, codes.Error, handlings[1].Status.Code)
	assert.Equal(t, "busy", handlings[1].Status.Description)
	assert.Equal(t, "*errors.errorString", attrs(handlings[1])["error.type"])
	assert.InDelta(t, redisdelay.MinRedeliveryDelay.Seconds(), attrs(w.childOf(handlings[0], "nack "+w.Topic))[retryIn], 1e-9)
	retry, _ := attrs(w.childOf(handlings[1], "nack "+w.Topic))[retryIn].(float64)
	assert.Greater(t, retry, redisdelay.MinRedeliveryDelay.Seconds(), "by DelayOnError")
	assert.LessOrEqual(t, retry, 0.7, "some time of it is over")
	onwardIsPartOfItsHandling(t, w, handlings[2])
}

func handlingIsLinked(t *testing.T, handling, send tracetest.SpanStub) {
	t.Helper()
	assert.Equal(t, trace.SpanKindConsumer, handling.SpanKind)
	assert.False(t, handling.Parent.IsValid(), "each handling is a trace of its own")
	assert.NotEqual(t, traceOf(send), traceOf(handling))
	require.Len(t, handling.Links, 1)
	assert.Equal(t, traceOf(send), handling.Links[0].SpanContext.TraceID())
	assert.Equal(t, []trace.SpanID{id(send)}, linked(handling))
}

func onwardIsPartOfItsHandling(t *testing.T, w *watched, handling tracetest.SpanStub) {
	t.Helper()
	topic := w.Topic + "/second"
	assert.Equal(t, codes.Unset, handling.Status.Code)
	assert.Equal(t, id(handling), w.one("work").Parent.SpanID())
	send := w.childOf(handling, "send "+topic)
	onward := w.one("process " + topic)
	handlingIsLinked(t, onward, send)
	got := attrs(onward, "messaging.redisdelay.message.id", "messaging.redisdelay.message.due_at")
	late, ok := got["messaging.redisdelay.message.lateness"].(float64)
	assert.True(t, ok)
	assert.GreaterOrEqual(t, late, 0.0)
	delete(got, "messaging.redisdelay.message.lateness")
	assert.Equal(t, map[string]any{
		"messaging.system": "redisdelay", "messaging.operation.name": "process", "messaging.operation.type": "process",
		"messaging.destination.name": topic, "messaging.consumer.group.name": redisdelay.DefaultConsumerGroup,
		"messaging.message.id": "b", "messaging.message.body.size": int64(6),
		"messaging.redisdelay.message.delivery_attempt": int64(1),
	}, got)
	assert.Equal(t, map[string]any{
		"messaging.system": "redisdelay", "messaging.operation.name": "ack", "messaging.operation.type": "settle",
		"messaging.destination.name": topic, "messaging.consumer.group.name": redisdelay.DefaultConsumerGroup,
		"messaging.destination.partition.id": "0", "messaging.message.id": "b",
	}, attrs(w.childOf(onward, "ack "+topic), "messaging.redisdelay.message.id"))
}

// childOf waits for the one child of a span with a name.
func (w *watched) childOf(parent tracetest.SpanStub, name string) (child tracetest.SpanStub) {
	w.T.Helper()
	require.EventuallyWithT(w.T, func(c *assert.CollectT) {
		n := 0
		for _, span := range w.spans.GetSpans() {
			if span.Name == name && span.Parent.SpanID() == id(parent) {
				child = span
				n++
			}
		}
		assert.Equal(c, 1, n, "children %q", name)
	}, soon, tick)
	assert.Equal(w.T, traceOf(parent), traceOf(child))
	return child
}

func dueAt(t *testing.T, span tracetest.SpanStub) time.Time {
	t.Helper()
	text, _ := attrs(span)["messaging.redisdelay.message.due_at"].(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return at
}
