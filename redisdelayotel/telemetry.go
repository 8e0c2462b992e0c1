// Package redisdelayotel exports to OpenTelemetry: traces that follow a message from Publish through its delay to each
// handling, and metrics, both by the semantic conventions for messaging. One line adds it to a Router:
//
//	telemetry, err := redisdelayotel.New(redisdelayotel.Config{})
//	telemetry.AddTo(router)
//
// Wrap publishers that the Router does not know (Telemetry.Publisher). With Telemetry.Observer in a SubscriberConfig,
// traces also show how each delivery was settled. docs/operate/tracing.md shows a trace.
package redisdelayotel

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// Config configures a Telemetry. The zero value uses the global providers of OpenTelemetry.
type Config struct {
	// TracerProvider creates the spans. Default: the global one.
	TracerProvider trace.TracerProvider

	// MeterProvider creates the metrics. Default: the global one.
	MeterProvider metric.MeterProvider

	// Propagator writes the trace context of Publish to the metadata of a message. Default: the global one or, if none
	// is set before New, W3C trace context and baggage.
	Propagator propagation.TextMapPropagator

	// ChildWithin is how long after Publish a handling must start, by the clocks of the two hosts, to be a child of the
	// publishing span. Later ones are traces of their own with a link to that span, so that no trace lasts as long as a
	// delay. Default: 0, never a child.
	ChildWithin time.Duration
}

func (c *Config) setDefaults() {
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if c.Propagator == nil {
		c.Propagator = otel.GetTextMapPropagator()
		if len(c.Propagator.Fields()) == 0 { // it writes nothing, so handlings would have no link
			c.Propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
		}
	}
}

// Telemetry reports what publishers and handlers do. It is safe for concurrent use.
type Telemetry struct {
	tracer     trace.Tracer
	meters     meters
	propagator propagation.TextMapPropagator
	within     time.Duration

	observing atomic.Bool // whether anybody reports settlements
	handlings handlings
}

// New returns a Telemetry. It does no I/O, and needs no Close; flush the providers yourself. The error is a
// *redisdelay.ConfigError, or that of the MeterProvider.
func New(config Config) (*Telemetry, error) {
	config.setDefaults()
	if config.ChildWithin < 0 {
		problem := fmt.Sprintf("is %s, want 0 or more", config.ChildWithin)
		return nil, &redisdelay.ConfigError{Field: "ChildWithin", Problem: problem}
	}
	meters, err := newMeters(config.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("redisdelayotel: MeterProvider: %w", err)
	}
	return &Telemetry{
		tracer:     config.TracerProvider.Tracer(scope, trace.WithSchemaURL(schema)),
		meters:     meters,
		propagator: config.Propagator,
		within:     config.ChildWithin,
	}, nil
}

// AddTo reports all handlers of a Router and the messages that they return. Call it before adding other middlewares, so
// that their retries are part of a handling. A second call changes nothing.
func (t *Telemetry) AddTo(router *message.Router) {
	router.AddMiddleware(t.Middleware)
	router.AddPublisherDecorators(func(p message.Publisher) (message.Publisher, error) { return t.Publisher(p), nil })
}

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
