package redisdelayotel_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	redisdelayotel "github.com/redisdelay/watermill-redisdelay/redisdelayotel"
)

const (
	soon = fixture.Soon
	tick = 5 * time.Millisecond
)

// watched is a scene whose traces and metrics can be read back.
type watched struct {
	*fixture.Scene
	telemetry *redisdelayotel.Telemetry
	tracer    trace.Tracer
	spans     *tracetest.InMemoryExporter
	metrics   *sdkmetric.ManualReader
}

func watch(t *testing.T, change ...func(*redisdelayotel.Config)) *watched {
	t.Helper()
	w := &watched{Scene: fixture.New(t), spans: tracetest.NewInMemoryExporter(), metrics: sdkmetric.NewManualReader()}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.metrics))
	t.Cleanup(func() {
		assert.NoError(t, traces.Shutdown(context.Background()))
		assert.NoError(t, meters.Shutdown(context.Background()))
	})
	config := redisdelayotel.Config{TracerProvider: traces, MeterProvider: meters}
	for _, c := range change {
		c(&config)
	}
	telemetry, err := redisdelayotel.New(config)
	require.NoError(t, err)
	w.telemetry, w.tracer = telemetry, traces.Tracer("test")
	return w
}

// observed is a change of a subscriber's config.
func (w *watched) observed(c *redisdelay.SubscriberConfig) { c.Observer = w.telemetry.Observer() }

// router returns a Router that the telemetry was added to. Run it with running.
func (w *watched) router() *message.Router {
	w.T.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: fixture.Soon}, watermill.NopLogger{})
	require.NoError(w.T, err)
	w.telemetry.AddTo(router)
	return router
}

// running runs a Router until the end of the test.
func (w *watched) running(router *message.Router) {
	w.T.Helper()
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	w.T.Cleanup(func() {
		assert.NoError(w.T, router.Close())
		assert.NoError(w.T, <-ended)
	})
	<-router.Running()
}

// named waits until n spans with a name have ended, and returns them in their order.
func (w *watched) named(name string, n int) tracetest.SpanStubs {
	w.T.Helper()
	var found tracetest.SpanStubs
	require.EventuallyWithT(w.T, func(c *assert.CollectT) {
		found = nil
		for _, span := range w.spans.GetSpans() {
			if span.Name == name {
				found = append(found, span)
			}
		}
		assert.Len(c, found, n, "spans %q", name)
	}, soon, tick)
	return found
}

func (w *watched) one(name string) tracetest.SpanStub {
	w.T.Helper()
	return w.named(name, 1)[0]
}

// attrs are the attributes of a span, except those that differ in each run.
func attrs(span tracetest.SpanStub, except ...attribute.Key) map[string]any {
	found := map[string]any{}
	for _, a := range span.Attributes {
		found[string(a.Key)] = a.Value.AsInterface()
	}
	for _, key := range except {
		delete(found, string(key))
	}
	return found
}

// linked lists the spans that a span has links to.
func linked(span tracetest.SpanStub) (ids []trace.SpanID) {
	for _, link := range span.Links {
		ids = append(ids, link.SpanContext.SpanID())
	}
	return ids
}

func id(span tracetest.SpanStub) trace.SpanID { return span.SpanContext.SpanID() }

func traceOf(span tracetest.SpanStub) trace.TraceID { return span.SpanContext.TraceID() }
