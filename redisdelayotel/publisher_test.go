package redisdelayotel_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

func TestPublishDoesNotChangeTheCallersMessages(t *testing.T) {
	w := watch(t)
	messages := w.Subscribe()
	msg := message.NewMessage("a", []byte("x"))
	msg.SetContext(context.WithValue(context.Background(), tick, "value"))
	ctx := msg.Context()
	w.send(msg)
	w.send(msg)
	assert.Empty(t, msg.Metadata)
	assert.Equal(t, ctx, msg.Context())
	sends := w.named("send "+w.Topic, 2)
	for _, send := range sends {
		assert.Empty(t, send.Links, "a second call is not about the first")
		got := w.Next(messages)
		assert.Contains(t, got.Metadata.Get("traceparent"), id(send).String())
		got.Ack()
	}
}

func TestAMessageKeepsTheTraceContextOfItsCaller(t *testing.T) {
	w := watch(t)
	messages := w.Subscribe()
	const own = "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01"
	given := message.NewMessage("given", nil)
	given.Metadata.Set("traceparent", own)
	require.NoError(t, w.telemetry.Publisher(w.Publisher()).Publish(w.Topic, given, message.NewMessage("plain", nil)))
	send := w.one("send " + w.Topic)
	assert.Equal(t, trace.SpanKindProducer, send.SpanKind, "it is the context of one of them")
	assert.Equal(t, int64(2), attrs(send)["messaging.batch.message_count"])
	assert.NotContains(t, attrs(send), "messaging.message.id")
	require.Len(t, send.Links, 1)
	assert.Equal(t, "0102030405060708", linked(send)[0].String())
	for range 2 {
		msg := w.Next(messages)
		want := id(send).String()
		if msg.UUID == "given" {
			want = own
		}
		assert.Contains(t, msg.Metadata.Get("traceparent"), want)
		msg.Ack()
	}
}

func TestTwoLayersOfAPublisherReportACallOnce(t *testing.T) {
	w := watch(t)
	w.Subscribe()
	p := w.telemetry.Publisher(w.telemetry.Publisher(w.Publisher()))
	require.NoError(t, p.Publish(w.Topic, message.NewMessage("a", nil)))
	assert.Len(t, w.spans.GetSpans(), 1)
}

func TestADelayThatIsOverIsNotReportedAgain(t *testing.T) {
	w := watch(t)
	messages := w.Subscribe()
	w.send(delayed(time.Millisecond))
	first := w.Next(messages)
	w.send(first)
	first.Ack()
	w.Next(messages).Ack()
	sends := w.named("send "+w.Topic, 2)
	assert.Contains(t, attrs(sends[0]), "messaging.redisdelay.message.delay")
	assert.NotContains(t, attrs(sends[1]), "messaging.redisdelay.message.delay")
}

func TestABatchIsLinkedToTheSpansOfAllItsMessages(t *testing.T) {
	w := watch(t)
	under := func(name string) *message.Message {
		ctx, span := w.tracer.Start(context.Background(), name)
		span.End()
		return message.NewMessageWithContext(ctx, name, nil)
	}
	first, second, third := under("first"), under("second"), under("third")
	again := message.NewMessageWithContext(second.Context(), "again", nil)
	own := message.NewMessageWithContext(first.Context(), "own", nil)
	none := message.NewMessage("none", nil)
	require.NoError(t, w.telemetry.Publisher(w.Publisher()).Publish(w.Topic, first, none, second, again, own, third))
	send := w.one("send " + w.Topic)
	assert.Equal(t, id(w.one("first")), send.Parent.SpanID())
	assert.Equal(t, []trace.SpanID{id(w.one("second")), id(w.one("third"))}, linked(send))
}

type panicking struct{ message.Publisher }

func (panicking) Publish(string, ...*message.Message) error { panic("oops") }

func TestAPanicInPublishEndsTheSpanAndPropagates(t *testing.T) {
	w := watch(t)
	assert.PanicsWithValue(t, "oops", func() {
		_ = w.telemetry.Publisher(panicking{}).Publish(w.Topic, message.NewMessage("a", nil))
	})
	send := w.one("send " + w.Topic)
	assert.Equal(t, codes.Error, send.Status.Code)
	assert.Equal(t, "panic", attrs(send)["error.type"])
}

func TestPublishOfNothingOrNilCreatesNoSpan(t *testing.T) {
	w := watch(t)
	publisher := w.telemetry.Publisher(w.Publisher())
	require.NoError(t, publisher.Publish(w.Topic))
	require.ErrorIs(t, publisher.Publish(w.Topic, message.NewMessage("a", nil), nil), redisdelay.ErrNilMessage)
	assert.Empty(t, w.spans.GetSpans())
}
