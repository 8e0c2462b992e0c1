// Package redisdelayotel exports to OpenTelemetry: traces that follow a message from Publish through its delay to each
// handling, metrics, both by the semantic conventions for messaging, and log lines with trace ids. One line adds it to
// a Router:
//
//	telemetry, err := redisdelayotel.New(redisdelayotel.Config{})
//	telemetry.AddTo(router)
//
// Wrap publishers that the Router does not know (Telemetry.Publisher). With Telemetry.Observer in a SubscriberConfig,
// traces also show how each delivery was settled. docs/operate/tracing.md shows a trace.
package redisdelayotel

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// DefaultSystem is the messaging.system of spans and metrics.
const DefaultSystem = "redisdelay"

// Config configures a Telemetry. The zero value uses the global providers of OpenTelemetry.
type Config struct {
	// TracerProvider creates the spans. Default: the global one.
	TracerProvider trace.TracerProvider

	// MeterProvider creates the metrics. Default: the global one.
	MeterProvider metric.MeterProvider

	// Propagator writes the trace context of Publish to the metadata of a message. Default: the global one or, if none
	// is set, W3C trace context and baggage.
	Propagator propagation.TextMapPropagator

	// ChildWithin is how long after Publish a handling must start, by the clocks of the two hosts, to be a child of the
	// publishing span. Later ones are traces of their own with a link to that span, so that no trace lasts as long as a
	// delay. Default: 0, never a child.
	ChildWithin time.Duration

	// Logger logs each step of a message at debug level, with trace ids. Default: none. Package redisdelay has a logger
	// of its own.
	Logger *slog.Logger

	// Server is the address of Redis for server.address and server.port of all spans, as host:port or the path of a
	// socket. For a Cluster or Sentinel, use any address that operators know. Default: none.
	Server string

	// System is the messaging.system, to use this package with another Pub/Sub of the program. Default: DefaultSystem.
	System string
}

func (c *Config) setDefaults() {
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if c.Propagator == nil {
		c.Propagator = globalPropagator{otel.GetTextMapPropagator}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.System == "" {
		c.System = DefaultSystem
	}
}

// Telemetry reports what publishers and handlers do. It is safe for concurrent use.
type Telemetry struct {
	tracer     trace.Tracer
	meters     meters
	propagator propagation.TextMapPropagator
	within     time.Duration
	logger     *slog.Logger
	system     string
	server     []attribute.KeyValue

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
	server, err := serverAttributes(config.Server)
	if err != nil {
		return nil, err
	}
	meters, err := newMeters(config.MeterProvider, config.System)
	if err != nil {
		return nil, fmt.Errorf("redisdelayotel: MeterProvider: %w", err)
	}
	return &Telemetry{
		tracer:     config.TracerProvider.Tracer(scope, trace.WithSchemaURL(schema)),
		meters:     meters,
		propagator: config.Propagator,
		within:     config.ChildWithin,
		logger:     config.Logger,
		system:     config.System,
		server:     server,
	}, nil
}

// AddTo reports all handlers of a Router and the messages that they return. Call it before adding other middlewares, so
// that their retries are part of a handling. A second call changes nothing.
func (t *Telemetry) AddTo(router *message.Router) {
	router.AddMiddleware(t.Middleware)
	router.AddPublisherDecorators(func(p message.Publisher) (message.Publisher, error) { return t.Publisher(p), nil })
}
