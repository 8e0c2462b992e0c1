package redisdelayotel

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// globalPropagator is OpenTelemetry's global propagator. Until a program sets one, that writes
// nothing, and handlings would have no link; so it is the usual one then.
type globalPropagator struct {
	global func() propagation.TextMapPropagator
}

func (p globalPropagator) current() propagation.TextMapPropagator {
	if set := p.global(); len(set.Fields()) > 0 {
		return set
	}
	return propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
}

func (p globalPropagator) Inject(ctx context.Context, carrier propagation.TextMapCarrier) {
	p.current().Inject(ctx, carrier)
}

func (p globalPropagator) Extract(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	return p.current().Extract(ctx, carrier)
}

func (p globalPropagator) Fields() []string { return p.current().Fields() }

// extract returns ctx with the baggage of a message, and the creation context of the message
// as its span; without a span if the message has none, even if ctx has one: that may be the
// span that was open when the subscription began.
func (t *Telemetry) extract(ctx context.Context, metadata message.Metadata) context.Context {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	return t.propagator.Extract(ctx, propagation.MapCarrier(metadata))
}

// inject writes the baggage of ctx to a message, and makes the span of ctx its creation
// context. Without a span, as from a TracerProvider that makes none, the message keeps the
// creation context that it has.
func (t *Telemetry) inject(ctx context.Context, metadata message.Metadata) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		for _, field := range t.propagator.Fields() { // one that is not written would stay, as tracestate
			delete(metadata, field)
		}
	}
	t.propagator.Inject(ctx, propagation.MapCarrier(metadata))
}
