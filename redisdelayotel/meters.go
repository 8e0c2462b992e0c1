package redisdelayotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
)

// meters are the metrics of the conventions.
type meters struct {
	system           messagingconv.SystemAttr
	sentMessages     messagingconv.ClientSentMessages
	consumedMessages messagingconv.ClientConsumedMessages
	operation        messagingconv.ClientOperationDuration
	process          messagingconv.ProcessDuration
}

func newMeters(provider metric.MeterProvider, system string) (m meters, err error) {
	meter := provider.Meter(scope, metric.WithSchemaURL(schema))
	m.system = messagingconv.SystemAttr(system)
	if m.sentMessages, err = messagingconv.NewClientSentMessages(meter); err != nil {
		return m, err
	}
	if m.consumedMessages, err = messagingconv.NewClientConsumedMessages(meter); err != nil {
		return m, err
	}
	// The boundaries that the conventions advise.
	buckets := metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
	if m.operation, err = messagingconv.NewClientOperationDuration(meter, buckets); err != nil {
		return m, err
	}
	m.process, err = messagingconv.NewProcessDuration(meter, buckets)
	return m, err
}

func (m *meters) sent(ctx context.Context, messages int, topic string, errorAttrs []attribute.KeyValue) {
	m.sentMessages.Add(ctx, int64(messages), sending, m.system, place(topic, "", errorAttrs)...)
}

func (m *meters) consumed(ctx context.Context, topic, group string) {
	m.consumedMessages.Add(ctx, 1, processing, m.system, place(topic, group, nil)...)
}

// called records a Publish call, or a call to Redis.
func (m *meters) called(ctx context.Context, took time.Duration, operation, topic string, errorAttrs []attribute.KeyValue) {
	attrs := append(place(topic, "", errorAttrs), operationType(operation))
	m.operation.Record(ctx, took.Seconds(), operation, m.system, attrs...)
}

func (m *meters) processed(ctx context.Context, took time.Duration, topic, group string, errorAttrs []attribute.KeyValue) {
	m.process.Record(ctx, took.Seconds(), processing, m.system, place(topic, group, errorAttrs)...)
}
