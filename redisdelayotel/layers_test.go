package redisdelayotel_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
)

func TestAddingTelemetryTwiceReportsOnce(t *testing.T) {
	w := watch(t)
	second := w.Beside("/second")
	router := w.router()
	w.telemetry.AddTo(router)
	router.AddHandler("first", w.Topic, w.Subscriber(w.observed), second.Topic, w.Publisher(), copied)
	w.running(router)
	w.send(message.NewMessage("a", nil))
	require.NoError(t, w.handle(second.Subscribe(w.observed), succeed))
	w.one("ack " + second.Topic)
	w.chained(w.Topic, second.Topic)
}

func TestEachAttemptOfAnOuterRetryIsAHandling(t *testing.T) {
	w := watch(t)
	tries := 0
	handler := middleware.Retry{MaxRetries: 1}.Middleware(w.telemetry.Middleware(w.telemetry.Middleware(
		func(*message.Message) ([]*message.Message, error) {
			if tries++; tries == 1 {
				return nil, errBusy
			}
			return nil, nil
		})))
	w.send(message.NewMessage("a", nil))
	msg := w.Next(w.Subscribe(w.observed))
	_, err := handler(msg)
	require.NoError(t, err)
	msg.Ack()
	handlings := w.named("process "+w.Topic, 2)
	w.childOf(handlings[1], "ack "+w.Topic)
	for _, handling := range handlings {
		handlingIsLinked(t, handling, w.one("send "+w.Topic))
	}
}

// An in-process Pub/Sub may hand its subscribers the context of the publisher.
func TestHandlersInThePublishersContextGetTheirOwnSpans(t *testing.T) {
	w := watch(t)
	channel := gochannel.NewGoChannel(gochannel.Config{PreserveContext: true}, watermill.NopLogger{})
	t.Cleanup(func() { assert.NoError(t, channel.Close()) })
	router := w.router()
	traced := w.telemetry.Publisher(channel)
	handled := 0
	router.AddHandler("again", "loop", channel, "loop", channel, func(msg *message.Message) ([]*message.Message, error) {
		if handled++; handled == 3 {
			return nil, nil
		}
		return []*message.Message{msg.CopyWithContext()}, nil
	})
	w.running(router)
	require.NoError(t, traced.Publish("loop", message.NewMessage("a", nil)))
	handlings, sends := w.named("process loop", 3), w.named("send loop", 3)
	parents := map[trace.SpanID]bool{}
	for _, send := range sends {
		parents[send.Parent.SpanID()] = true
	}
	assert.Len(t, parents, 3)
	for _, handling := range handlings {
		assert.Len(t, handling.Links, 1)
	}
}

func TestANestedHandlingGetsItsOwnSpan(t *testing.T) {
	w := watch(t)
	channel := gochannel.NewGoChannel(gochannel.Config{PreserveContext: true, BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	t.Cleanup(func() { assert.NoError(t, channel.Close()) })
	traced := w.telemetry.Publisher(channel)
	router := w.router()
	router.AddConsumerHandler("outer", "outer", channel, func(msg *message.Message) error {
		return traced.Publish("inner", msg) // until inner has handled it
	})
	router.AddConsumerHandler("inner", "inner", channel, succeed)
	w.running(router)
	require.NoError(t, traced.Publish("outer", message.NewMessage("a", nil)))
	w.chained("outer", "inner")
}
