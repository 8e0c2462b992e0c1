package redisdelayotel

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// The names of spans and attributes. Those of the semantic conventions for messaging, whose
// status is Development, are of version 1.43.0; this file alone imports them. The names of the
// metrics come with their instruments (meters.go).
const (
	scope  = "github.com/redisdelay/watermill-redisdelay/redisdelayotel"
	schema = semconv.SchemaURL
)

// What the conventions have no name for is, by their rule, below messaging.SYSTEM.
const (
	keyID      = attribute.Key("messaging.redisdelay.message.id")               // Delivery.ID; messaging.message.id is the UUID
	keyAttempt = attribute.Key("messaging.redisdelay.message.delivery_attempt") // from 1
	keyDelay   = attribute.Key("messaging.redisdelay.message.delay")            // seconds
	keyDueAt   = attribute.Key("messaging.redisdelay.message.due_at")           // RFC 3339, by Redis's clock
	keyLate    = attribute.Key("messaging.redisdelay.message.lateness")         // seconds; negative if early

	keyLeaseLost  = attribute.Key("messaging.redisdelay.lease_lost")  // another consumer may have the message
	keyRetryIn    = attribute.Key("messaging.redisdelay.retry_in")    // seconds until the message is due again
	keyDeadLetter = attribute.Key("messaging.redisdelay.dead_letter") // this settlement made it one
	keyStale      = attribute.Key("messaging.redisdelay.stale")       // the settlement has changed nothing
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
func (t *Telemetry) attributes(operation, topic, group string) trace.SpanStartEventOption {
	list := []attribute.KeyValue{
		semconv.MessagingSystemKey.String(t.system),
		semconv.MessagingOperationName(operation),
		operationType(operation),
	}
	list = append(list, destination(topic)...)
	list = append(list, t.server...)
	if group != "" {
		list = append(list, semconv.MessagingConsumerGroupName(group))
	}
	return trace.WithAttributes(list...)
}

// destination names a topic. A message of another Pub/Sub may come from one that is not known.
func destination(topic string) []attribute.KeyValue {
	if topic == "" {
		return nil
	}
	return []attribute.KeyValue{semconv.MessagingDestinationName(topic)}
}

// serverAttributes name the server with an address; none for "".
func serverAttributes(address string) ([]attribute.KeyValue, error) {
	if address == "" {
		return nil, nil
	}
	if strings.HasPrefix(address, "/") {
		return []attribute.KeyValue{semconv.ServerAddress(address)}, nil
	}
	host, text, err := net.SplitHostPort(address)
	port, err2 := strconv.ParseUint(text, 10, 16)
	if err != nil || err2 != nil || host == "" || port == 0 {
		problem := fmt.Sprintf("is %q, want host:port or the path of a socket", address)
		return nil, &redisdelay.ConfigError{Field: "Server", Problem: problem}
	}
	return []attribute.KeyValue{semconv.ServerAddress(host), semconv.ServerPort(int(port))}, nil
}

// place is where the messages are that a metric counts.
func place(topic, group string, more []attribute.KeyValue) []attribute.KeyValue {
	list := append(make([]attribute.KeyValue, 0, 4), destination(topic)...)
	if group != "" {
		list = append(list, semconv.MessagingConsumerGroupName(group))
	}
	return append(list, more...)
}

func errorTypeNamed(name string) attribute.KeyValue { return semconv.ErrorTypeKey.String(name) }

// errorTypeOf is what the method ErrorType of an error says, or the name of its type.
func errorTypeOf(err error) attribute.KeyValue { return semconv.ErrorType(err) }

func partitionAttribute(partition int) attribute.KeyValue {
	return semconv.MessagingDestinationPartitionID(strconv.Itoa(partition))
}

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
	list := []attribute.KeyValue{keyID.String(e.ID), partitionAttribute(e.Partition)}
	if uuid != "" {
		list = append(list, semconv.MessagingMessageID(uuid))
	}
	if e.RetryIn > 0 {
		list = append(list, seconds(keyRetryIn, e.RetryIn))
	}
	if e.Stale {
		list = append(list, keyStale.Bool(true))
	}
	if makesDeadLetter(e) {
		list = append(list, keyDeadLetter.Bool(true))
	}
	return list
}

// makesDeadLetter does not know of a message that is Expired: it may have been dropped. Only Buried tells.
func makesDeadLetter(e observe.Settled) bool {
	switch e.How {
	case observe.BuriedByHandler, observe.Undecodable:
		return !e.Stale
	case observe.Nacked:
		return !e.Stale && e.RetryIn == 0
	}
	return false
}

func seconds(key attribute.Key, d time.Duration) attribute.KeyValue { return key.Float64(d.Seconds()) }

func moment(key attribute.Key, at time.Time) attribute.KeyValue {
	return key.String(at.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}
