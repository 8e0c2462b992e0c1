// Package redisdelayotel reports by OpenTelemetry what happens to messages: traces that follow a
// message from Publish through its delay to each handling, and metrics, both by the semantic
// conventions for messaging, and log lines with trace ids. One line adds it to a Router:
//
//	telemetry, err := redisdelayotel.New(redisdelayotel.Config{})
//	telemetry.AddTo(router)
//
// Publishers that the Router does not know are wrapped (Telemetry.Publisher). With
// Telemetry.Observer in a SubscriberConfig, traces also show how each delivery was settled.
//
// docs/operate/tracing.md shows what a trace looks like.
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

// Config configures a Telemetry. The zero value is for a program that has set OpenTelemetry's
// global providers.
type Config struct {
	// TracerProvider makes the spans. Default: the global one.
	TracerProvider trace.TracerProvider

	// MeterProvider takes the metrics. Default: the global one.
	MeterProvider metric.MeterProvider

	// Propagator writes the trace context of Publish to a message's metadata, where handlers
	// find it. Default: the global one or, until there is one, W3C trace context and baggage.
	Propagator propagation.TextMapPropagator

	// ChildWithin makes a handling a part of the trace that published its message, as a child
	// of the publishing span, if it begins no later than this after Publish, by the clocks of
	// the two hosts. Any other handling is a trace of its own with a link to that span, so that
	// no trace lasts as long as a delay. Default: 0, never.
	ChildWithin time.Duration

	// Logger gets a line at debug level for each step of a message's way, with trace ids.
	// Default: none. Package redisdelay logs by itself to the logger that it is given.
	Logger *slog.Logger

	// Server is the address of Redis, as host:port or the path of a socket, for server.address and
	// server.port of all spans. Of a Cluster or Sentinels, any address by which people know it will
	// do. Default: none, and spans do not name it.
	Server string

	// System is the messaging.system. Another one is for the publishers and handlers of
	// another Pub/Sub in the same program. Default: DefaultSystem.
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

// New returns a Telemetry. It does no I/O. It has nothing to close: whoever made the providers
// flushes them. The error is a *redisdelay.ConfigError, or that of the
// MeterProvider.
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

// AddTo reports on all handlers of a Router and on what they return to be published. Call it
// before adding other middlewares, so that a handling is reported as the Router sees it, with
// all retries and with the time that they take. A second call changes nothing.
func (t *Telemetry) AddTo(router *message.Router) {
	router.AddMiddleware(t.Middleware)
	router.AddPublisherDecorators(func(p message.Publisher) (message.Publisher, error) { return t.Publisher(p), nil })
}
