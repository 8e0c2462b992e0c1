package redisdelayotel

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// AsyncPublisher is a Publisher with PublishAsync, such as a *redisdelay.Publisher.
type AsyncPublisher interface {
	message.Publisher
	PublishAsync(topic string, messages ...*message.Message) *redisdelay.PublishFuture
}

var _ AsyncPublisher = (*redisdelay.Publisher)(nil)

// publisher reports what another publishes.
type publisher struct {
	message.Publisher
	telemetry *Telemetry
}

// asyncPublisher is publisher for PublishAsync, too.
type asyncPublisher struct {
	publisher
	next AsyncPublisher
}

// Publisher returns a Publisher that reports each Publish call as a span "send TOPIC", and writes the context of the
// span to the metadata of copies of the messages. Close closes next. Keep the *redisdelay.Publisher for Cancel and
// Reschedule.
//
// The parent of the span is the span in the context of the first message; those of the others are links. If the
// metadata of a message contain the context of another span, as with Watermill's forwarder, they keep it, and the span
// links to it. A message that its handler publishes again gets the new context.
func (t *Telemetry) Publisher(next message.Publisher) message.Publisher {
	return &publisher{next, t}
}

// AsyncPublisher is Publisher for one that has PublishAsync. The span of a PublishAsync call ends when the outcome is
// known. Keep the *redisdelay.Publisher for Flush.
func (t *Telemetry) AsyncPublisher(next AsyncPublisher) AsyncPublisher {
	return &asyncPublisher{publisher{next, t}, next}
}

// Publish implements message.Publisher.
func (p *publisher) Publish(topic string, messages ...*message.Message) (err error) {
	if !reportable(topic, messages) {
		return p.Publisher.Publish(topic, messages...)
	}
	s := p.telemetry.startSend(topic, messages)
	defer func() { s.end(err) }()
	err = p.Publisher.Publish(topic, s.messages...)
	s.returned = true
	return err
}

// PublishAsync implements AsyncPublisher.
func (p *asyncPublisher) PublishAsync(topic string, messages ...*message.Message) *redisdelay.PublishFuture {
	if !reportable(topic, messages) {
		return p.next.PublishAsync(topic, messages...)
	}
	s := p.telemetry.startSend(topic, messages)
	defer func() {
		if !s.returned { // it panics
			s.end(nil)
		}
	}()
	future := p.next.PublishAsync(topic, s.messages...)
	s.returned = true
	future.OnDone(s.end)
	return future
}

// reportable reports whether a call is one, and no other layer reports it.
func reportable(topic string, messages []*message.Message) bool {
	return len(messages) > 0 && !slices.Contains(messages, nil) && !reported(messages[0], topic)
}

// sendKey is for the topic of the call that reports on a message. Two layers of the same
// publisher may report, as one that is wrapped by hand and by the Router is.
type sendKey struct{}

func reported(msg *message.Message, topic string) bool {
	by, ok := msg.Context().Value(sendKey{}).(string)
	return ok && by == topic
}

// send is a Publish call.
type send struct {
	t        *Telemetry
	ctx      context.Context
	span     trace.Span
	topic    string
	start    time.Time
	messages []*message.Message // copies
	returned bool               // without a panic
}

func (t *Telemetry) startSend(topic string, messages []*message.Message) *send {
	s := &send{t: t, topic: topic, start: time.Now(), messages: make([]*message.Message, len(messages))}
	kept := make([]bool, len(messages)) // whether it keeps the context that it carries
	kind := trace.SpanKindClient
	links := callers(messages)
	for i, msg := range messages {
		if own := t.contextOf(msg); own.IsValid() {
			kept[i], links = true, append(links, trace.Link{SpanContext: own})
		} else {
			kind = trace.SpanKindProducer
		}
	}
	s.ctx, s.span = t.tracer.Start(messages[0].Context(), spanName(sending, topic),
		trace.WithSpanKind(kind), trace.WithTimestamp(s.start), trace.WithLinks(links...), attributes(sending, topic, ""))
	for i, msg := range messages {
		ctx := trace.ContextWithSpan(msg.Context(), s.span)
		s.messages[i] = msg.Copy()
		s.messages[i].SetContext(context.WithValue(ctx, sendKey{}, topic))
		if !kept[i] {
			t.inject(ctx, s.messages[i].Metadata)
		}
	}
	return s
}

// callers links to the spans that are open in the contexts of the messages, except that of the
// first message: it is the parent.
func callers(messages []*message.Message) (links []trace.Link) {
	seen := map[trace.SpanID]bool{trace.SpanContextFromContext(messages[0].Context()).SpanID(): true}
	for _, msg := range messages[1:] {
		if at := trace.SpanContextFromContext(msg.Context()); at.IsValid() && !seen[at.SpanID()] {
			seen[at.SpanID()] = true
			links = append(links, trace.Link{SpanContext: at})
		}
	}
	return links
}

// contextOf is the creation context that a message to be published carries, if it is not the
// one of the message that is being handled: that is of a Publish call that is over.
func (t *Telemetry) contextOf(msg *message.Message) trace.SpanContext {
	own := trace.SpanContextFromContext(t.extract(context.Background(), msg.Metadata))
	handled, _ := msg.Context().Value(creationKey{}).(trace.SpanContext)
	if own.TraceID() == handled.TraceID() && own.SpanID() == handled.SpanID() {
		return trace.SpanContext{}
	}
	return own
}

func (s *send) end(err error) {
	now := time.Now()
	errorAttrs := errorAttributes(err, s.returned)
	s.span.SetAttributes(s.attributes()...)
	fail(s.span, err, errorAttrs)
	s.span.End(trace.WithTimestamp(now))
	s.t.meters.sent(s.ctx, len(s.messages), s.topic, errorAttrs)
	s.t.meters.called(s.ctx, now.Sub(s.start), sending, s.topic, errorAttrs)
}

func (s *send) attributes() []attribute.KeyValue {
	if len(s.messages) > 1 {
		return []attribute.KeyValue{batchAttribute(len(s.messages))}
	}
	msg := s.messages[0]
	list := messageAttributes(msg.UUID, len(msg.Payload), middleware.MessageCorrelationID(msg))
	if by, ok := delayOf(msg); ok {
		list = append(list, seconds(keyDelay, by))
	}
	return list
}

// delayOf is the delay that a message was published with. One that begins with + or -0h is
// over: package redisdelay marks it so in a message that it delivers.
func delayOf(msg *message.Message) (by time.Duration, ok bool) {
	text := msg.Metadata.Get(delay.DelayedForKey)
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-0h") {
		return 0, false
	}
	by, err := time.ParseDuration(text)
	return by, err == nil
}
