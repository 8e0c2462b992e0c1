package redisdelayotel

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/oklog/ulid/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// Middleware is a Watermill middleware that reports each handling as a span "process TOPIC", which is in the contexts
// of the message and of the messages that the handler returns. It links to the span that published the message, or is
// its child (Config.ChildWithin). It is an error if the handler panics, or returns an error without postponing the
// message (Delivery.Defer).
//
// AddTo adds it to all handlers of a Router. Without a Router, wrap the function that handles a message, and settle the
// message afterwards. Adding it twice reports once.
func (t *Telemetry) Middleware(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		if t.handles(msg) {
			return next(msg)
		}
		h := t.startHandling(msg)
		defer func() { h.end(err) }()
		produced, err = next(msg)
		h.returned = true
		h.adopt(produced)
		return produced, err
	}
}

// handlingKey is for the *handling that a Telemetry reports.
type handlingKey struct{ t *Telemetry }

// handles reports whether a handling of this message has begun and not ended. The context may
// also hold the handling of another message, which has published this one.
func (t *Telemetry) handles(msg *message.Message) bool {
	h, ok := msg.Context().Value(handlingKey{t}).(*handling)
	return ok && h.msg == msg && !h.ended.Load()
}

// creationKey is for the creation context of the message that is being handled.
type creationKey struct{}

// handling is one handling of a message.
type handling struct {
	t        *Telemetry
	msg      *message.Message
	delivery redisdelay.Delivery // zero for a message of another Pub/Sub
	topic    string
	uuid     string
	creation trace.SpanContext // of the message; not valid if it has none
	ctx      context.Context
	span     trace.Span
	start    time.Time
	returned bool // without a panic
	ended    atomic.Bool
}

func (t *Telemetry) startHandling(msg *message.Message) *handling {
	delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
	h := &handling{t: t, msg: msg, delivery: delivery, uuid: msg.UUID, start: time.Now()}
	h.topic = cmp.Or(delivery.Topic, message.SubscribeTopicFromCtx(msg.Context()))
	ctx := t.extract(msg.Context(), msg.Metadata)
	h.creation = trace.SpanContextFromContext(ctx)
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(h.start),
		attributes(processing, h.topic, delivery.Group), trace.WithAttributes(h.attributes(msg)...),
	}
	if h.creation.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: h.creation}))
	}
	if !t.soon(delivery, h.start) {
		options = append(options, trace.WithNewRoot())
	}
	h.ctx, h.span = t.tracer.Start(ctx, spanName(processing, h.topic), options...)
	msg.SetContext(h.mark(h.ctx))
	if delivery.ID != "" && t.observing.Load() {
		t.handlings.put(h)
	}
	t.meters.consumed(h.ctx, h.topic, delivery.Group)
	return h
}

// mark returns ctx as the message's. An in-process Pub/Sub may have given it the context of
// the Publish call, which is not to report what this handling publishes.
func (h *handling) mark(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, handlingKey{h.t}, h)
	ctx = context.WithValue(ctx, creationKey{}, h.creation)
	return context.WithValue(ctx, sendKey{}, nil)
}

func (h *handling) attributes(msg *message.Message) []attribute.KeyValue {
	list := messageAttributes(h.uuid, len(msg.Payload), middleware.MessageCorrelationID(msg))
	if d := h.delivery; d.ID != "" {
		list = append(list, keyID.String(d.ID), keyAttempt.Int(d.Attempt), moment(keyDueAt, d.DueAt), seconds(keyLate, d.Lateness()))
	}
	return list
}

// soon reports whether a handling belongs to the trace that published its message.
func (t *Telemetry) soon(delivery redisdelay.Delivery, now time.Time) bool {
	if t.within == 0 || len(delivery.ID) < ulid.EncodedSize {
		return false
	}
	id, err := ulid.ParseStrict(delivery.ID[:ulid.EncodedSize]) // another program's id may have any form
	return err == nil && now.Sub(id.Timestamp()) <= t.within
}

// adopt gives messages to be published what those have that were made with the context of the
// handling: its span, unless they have one, its baggage, and the creation context that they may
// have copied with the metadata.
func (h *handling) adopt(produced []*message.Message) {
	for _, msg := range produced {
		if msg == nil {
			continue
		}
		ctx := msg.Context()
		if !trace.SpanContextFromContext(ctx).IsValid() {
			ctx = trace.ContextWithSpan(ctx, h.span)
		}
		if baggage.FromContext(ctx).Len() == 0 {
			ctx = baggage.ContextWithBaggage(ctx, baggage.FromContext(h.ctx))
		}
		if ctx.Value(creationKey{}) == nil {
			ctx = context.WithValue(ctx, creationKey{}, h.creation)
		}
		msg.SetContext(ctx)
	}
}

func (h *handling) key() deliveryKey {
	return deliveryKey{h.delivery.Topic, h.delivery.Group, h.delivery.ID, h.delivery.Token}
}

func (h *handling) end(err error) {
	h.ended.Store(true)
	now := time.Now()
	var errorAttrs []attribute.KeyValue
	if !h.returned || !h.delivery.Deferred() {
		errorAttrs = errorAttributes(err, h.returned)
		fail(h.span, err, errorAttrs)
	}
	h.span.End(trace.WithTimestamp(now))
	h.t.meters.processed(h.ctx, now.Sub(h.start), h.topic, h.delivery.Group, errorAttrs)
}
