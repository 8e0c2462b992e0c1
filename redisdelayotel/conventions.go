package redisdelayotel

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// The names of spans and attributes. Those of the semantic conventions for messaging, whose
// status is Development, are of version 1.43.0; this file alone imports them. The names of the
// metrics come with their instruments.
const (
	scope  = "github.com/redisdelay/watermill-redisdelay/redisdelayotel"
	schema = semconv.SchemaURL
	system = "redisdelay"
)

// What the conventions have no name for is, by their rule, below messaging.redisdelay.
const (
	keyID      = attribute.Key("messaging.redisdelay.message.id")               // Delivery.ID; messaging.message.id is the UUID
	keyAttempt = attribute.Key("messaging.redisdelay.message.delivery_attempt") // from 1
	keyDelay   = attribute.Key("messaging.redisdelay.message.delay")            // seconds
	keyDueAt   = attribute.Key("messaging.redisdelay.message.due_at")           // RFC 3339, by Redis's clock
	keyLate    = attribute.Key("messaging.redisdelay.message.lateness")         // seconds; negative if early

	keyLeaseLost   = attribute.Key("messaging.redisdelay.lease_lost")   // another consumer may have the message
	keyRetryIn     = attribute.Key("messaging.redisdelay.retry_in")     // seconds until the message is due again
	keyDeadMessage = attribute.Key("messaging.redisdelay.dead_message") // this settlement made it one
	keyStale       = attribute.Key("messaging.redisdelay.stale")        // the settlement has changed nothing
)

// Operations, as messaging.operation.name. A settlement has the name of an
// observe.Settlement, and a call to Redis that of its script.
const (
	sending    = "send"
	processing = "process"
)

// operationType is the messaging.operation.type of an operation.
func operationType(operation string) attribute.KeyValue {
	switch operation {
	case sending:
		return semconv.MessagingOperationTypeSend
	case processing:
		return semconv.MessagingOperationTypeProcess
	case claimScript:
		return semconv.MessagingOperationTypeReceive
	}
	return semconv.MessagingOperationTypeSettle
}

func spanName(operation, topic string) string {
	if topic == "" {
		return operation
	}
	return operation + " " + topic
}

// attributes are those of every span.
func attributes(operation, topic, group string) trace.SpanStartEventOption {
	return trace.WithAttributes(place(topic, group, []attribute.KeyValue{
		semconv.MessagingSystemKey.String(system), semconv.MessagingOperationName(operation), operationType(operation),
	})...)
}

// place adds a topic and a group, where they are known, to attributes.
func place(topic, group string, more []attribute.KeyValue) []attribute.KeyValue {
	list := append(make([]attribute.KeyValue, 0, 5), more...)
	if topic != "" {
		list = append(list, semconv.MessagingDestinationName(topic))
	}
	if group != "" {
		list = append(list, semconv.MessagingConsumerGroupName(group))
	}
	return list
}

func errorTypeNamed(name string) attribute.KeyValue { return semconv.ErrorTypeKey.String(name) }

// errorTypeOf is what the method ErrorType of an error says, or the name of its type.
func errorTypeOf(err error) attribute.KeyValue { return semconv.ErrorType(err) }

func batchAttribute(messages int) attribute.KeyValue {
	return semconv.MessagingBatchMessageCount(messages)
}

// messageAttributes are those of a single message. The conversation is Watermill's correlation
// id.
func messageAttributes(uuid string, size int, correlation string) []attribute.KeyValue {
	list := []attribute.KeyValue{semconv.MessagingMessageBodySize(size)}
	if uuid != "" {
		list = append(list, semconv.MessagingMessageID(uuid))
	}
	if correlation != "" {
		list = append(list, semconv.MessagingMessageConversationID(correlation))
	}
	return list
}

// settlementAttributes say how a delivery has ended.
func settlementAttributes(e observe.Settled, uuid string) []attribute.KeyValue {
	list := []attribute.KeyValue{keyID.String(e.ID), semconv.MessagingDestinationPartitionID(strconv.Itoa(e.Partition))}
	if uuid != "" {
		list = append(list, semconv.MessagingMessageID(uuid))
	}
	if e.RetryIn > 0 {
		list = append(list, seconds(keyRetryIn, e.RetryIn))
	}
	if e.Stale {
		list = append(list, keyStale.Bool(true))
	}
	if !e.Stale && (e.Settlement == observe.BuriedByHandler || e.Settlement == observe.Nacked && e.RetryIn == 0) {
		list = append(list, keyDeadMessage.Bool(true))
	}
	return list
}

func seconds(key attribute.Key, d time.Duration) attribute.KeyValue { return key.Float64(d.Seconds()) }

func moment(key attribute.Key, at time.Time) attribute.KeyValue {
	return key.String(at.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

// meters are the metrics of the conventions.
type meters struct {
	sentMessages     messagingconv.ClientSentMessages
	consumedMessages messagingconv.ClientConsumedMessages
	operation        messagingconv.ClientOperationDuration
	process          messagingconv.ProcessDuration
}

func newMeters(provider metric.MeterProvider) (m meters, err error) {
	meter := provider.Meter(scope, metric.WithSchemaURL(schema))
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
	m.sentMessages.Add(ctx, int64(messages), sending, system, place(topic, "", errorAttrs)...)
}

func (m *meters) consumed(ctx context.Context, topic, group string) {
	m.consumedMessages.Add(ctx, 1, processing, system, place(topic, group, nil)...)
}

// called records a Publish call, or a call to Redis.
func (m *meters) called(ctx context.Context, took time.Duration, operation, topic string, errorAttrs []attribute.KeyValue) {
	attrs := append(place(topic, "", errorAttrs), operationType(operation))
	m.operation.Record(ctx, took.Seconds(), operation, system, attrs...)
}

func (m *meters) processed(ctx context.Context, took time.Duration, topic, group string, errorAttrs []attribute.KeyValue) {
	m.process.Record(ctx, took.Seconds(), processing, system, place(topic, group, errorAttrs)...)
}
