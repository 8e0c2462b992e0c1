package redisdelayotel_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	redisdelayotel "github.com/redisdelay/watermill-redisdelay/redisdelayotel"
)

// discarding takes messages and does nothing with them.
type discarding struct{}

func (discarding) Publish(string, ...*message.Message) error { return nil }
func (discarding) Close() error                              { return nil }

// BenchmarkMessage is what reporting a message costs its processes: the span of its Publish call and
// that of its handling, which are not exported, and the metrics.
func BenchmarkMessage(b *testing.B) {
	for name, sampler := range map[string]sdktrace.Sampler{
		"sampled": sdktrace.AlwaysSample(), "1 of 100 sampled": sdktrace.TraceIDRatioBased(0.01), "none sampled": sdktrace.NeverSample(),
	} {
		b.Run(name, func(b *testing.B) {
			traces := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithBatcher(tracetest.NewNoopExporter()))
			telemetry, err := redisdelayotel.New(redisdelayotel.Config{
				TracerProvider: traces, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
			})
			if err != nil {
				b.Fatal(err)
			}
			publisher := telemetry.Publisher(discarding{})
			handle := telemetry.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })
			b.ReportAllocs()
			for b.Loop() {
				msg := message.NewMessage("a9b7ba70-783b-317e-9998-dc4dd82eb3c5", []byte("order 7"))
				if err := publisher.Publish("orders", msg); err != nil {
					b.Fatal(err)
				}
				if _, err := handle(msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
