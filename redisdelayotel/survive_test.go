package redisdelayotel_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
)

func (w *watched) send(msg *message.Message) {
	w.T.Helper()
	require.NoError(w.T, w.telemetry.Publisher(w.Publisher()).Publish(w.Topic, msg))
}

func TestTheLinkSurvivesTheRequeueOfADeadMessage(t *testing.T) {
	w := watch(t)
	router := w.router()
	attempts := 0
	router.AddConsumerHandler("h", w.Topic, w.Subscriber(w.observed, func(c *redisdelay.SubscriberConfig) { c.MaxDeliveries = 1 }),
		func(*message.Message) error {
			if attempts++; attempts == 1 {
				return errBusy
			}
			return nil
		})
	w.running(router)
	w.send(message.NewMessage("a", nil))
	entry := dead.Messages(w.Scene, 1)[0]
	assert.Equal(t, true, attrs(w.one("nack " + w.Topic))["messaging.redisdelay.dead_message"])
	require.Equal(t, 1, dead.Requeue(w.Scene, entry.ID))
	w.one("ack " + w.Topic)
	for _, handling := range w.named("process "+w.Topic, 2) {
		handlingIsLinked(t, handling, w.one("send "+w.Topic))
	}
}

// chained asserts that the message of a first handling was published again by it, and handled
// again with a link to that.
func (w *watched) chained(first, again string) {
	w.T.Helper()
	handling := w.one("process " + first)
	handlingIsLinked(w.T, handling, w.one("send "+first))
	handlingIsLinked(w.T, w.one("process "+again), w.childOf(handling, "send "+again))
}

func TestAPoisonedMessageIsLinkedToItsHandling(t *testing.T) {
	w := watch(t)
	poisoned := w.Topic + "/poison"
	router := w.router()
	poison, err := middleware.PoisonQueue(w.telemetry.Publisher(w.Publisher()), poisoned)
	require.NoError(t, err)
	bad := router.AddConsumerHandler("bad", w.Topic, w.Subscriber(), func(*message.Message) error { return errBusy })
	bad.AddMiddleware(poison)
	router.AddConsumerHandler("poisoned", poisoned, w.Subscriber(), func(*message.Message) error { return nil })
	w.running(router)
	w.send(message.NewMessage("a", nil))
	w.chained(w.Topic, poisoned)
}

func TestAForwardedMessageIsLinkedToItsFirstPublisher(t *testing.T) {
	w := watch(t)
	outbox, target := w.Topic+"/outbox", w.Topic+"/target"
	router := w.router()
	traced := w.telemetry.Publisher(w.Publisher())
	_, err := forwarder.NewForwarder(w.Subscriber(), traced, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: outbox, Router: router})
	require.NoError(t, err)
	router.AddConsumerHandler("target", target, w.Subscriber(), func(*message.Message) error { return nil })
	w.running(router)

	enveloping := forwarder.NewPublisher(traced, forwarder.PublisherConfig{ForwarderTopic: outbox})
	require.NoError(t, w.telemetry.Publisher(enveloping).Publish(target, message.NewMessage("a", nil)))
	handling, envelope := w.one("process "+target), w.one("send "+outbox)
	forwarded := w.childOf(w.one("process "+outbox), "send "+target)
	assert.Equal(t, trace.SpanKindClient, forwarded.SpanKind, "its context is not the message's")
	for _, send := range w.named("send "+target, 2) {
		if id(send) == id(forwarded) {
			continue
		}
		handlingIsLinked(t, handling, send)
		assert.Equal(t, []trace.SpanID{id(send)}, linked(forwarded))
		assert.Equal(t, id(send), envelope.Parent.SpanID())
	}
}
