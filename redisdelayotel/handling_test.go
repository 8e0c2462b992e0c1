package redisdelayotel_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/observe"
	redisdelayotel "github.com/redisdelay/watermill-redisdelay/redisdelayotel"
)

func delayed(by time.Duration) *message.Message { return fixture.Delayed("a", by) }

// handle handles the next message by a function, without a Router.
func (w *watched) handle(messages <-chan *message.Message, do func(*message.Message) error) error {
	w.T.Helper()
	msg := w.Next(messages)
	defer msg.Nack() // without effect after an Ack
	_, err := w.telemetry.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, do(msg) })(msg)
	if err == nil {
		msg.Ack()
	}
	return err
}

func succeed(*message.Message) error { return nil }

func TestAHandlingSoonAfterPublishIsAChild(t *testing.T) {
	w := watch(t, func(c *redisdelayotel.Config) { c.ChildWithin = time.Minute })
	messages := w.Subscribe()
	w.send(message.NewMessage("a", nil))
	require.NoError(t, w.handle(messages, succeed))
	send, handling := w.one("send "+w.Topic), w.one("process "+w.Topic)
	assert.Equal(t, id(send), handling.Parent.SpanID())
	assert.True(t, handling.Parent.IsRemote())
	assert.Equal(t, traceOf(send), traceOf(handling))
	assert.Equal(t, []trace.SpanID{id(send)}, linked(handling), "the link is there in any case")
}

func TestAHandlingLongAfterPublishIsNoChild(t *testing.T) {
	w := watch(t, func(c *redisdelayotel.Config) { c.ChildWithin = 100 * time.Millisecond })
	messages := w.Subscribe()
	w.send(delayed(300 * time.Millisecond))
	require.NoError(t, w.handle(messages, succeed))
	handlingIsLinked(t, w.one("process "+w.Topic), w.one("send "+w.Topic))
}

func TestAHandlingIsNotPartOfTheSubscribersTrace(t *testing.T) {
	w := watch(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx, span := w.tracer.Start(ctx, "main")
	messages, err := w.Subscriber().Subscribe(ctx, w.Topic)
	require.NoError(t, err)
	w.Publish("a") // without telemetry, so there is nothing to link to
	require.NoError(t, w.handle(messages, succeed))
	span.End()
	handling := w.one("process " + w.Topic)
	assert.False(t, handling.Parent.IsValid())
	assert.NotEqual(t, traceOf(w.one("main")), traceOf(handling))
	assert.Empty(t, handling.Links)
}

func TestADeferredMessageIsNoError(t *testing.T) {
	w := watch(t)
	messages := w.Subscribe(w.observed)
	w.send(message.NewMessage("a", nil))
	require.Error(t, w.handle(messages, func(msg *message.Message) error {
		require.NoError(t, fixture.Delivery(t, msg).Defer(delay.For(time.Hour)))
		return errBusy
	}))
	handling := w.one("process " + w.Topic)
	assert.Equal(t, codes.Unset, handling.Status.Code)
	assert.NotContains(t, attrs(handling), "error.type")
	assert.Contains(t, attrs(w.childOf(handling, "defer "+w.Topic)), retryIn)
}

func TestABuriedMessageIsADeadMessage(t *testing.T) {
	w := watch(t)
	messages := w.Subscribe(w.observed)
	w.send(message.NewMessage("a", nil))
	require.Error(t, w.handle(messages, func(msg *message.Message) error {
		require.NoError(t, fixture.Delivery(t, msg).Bury("no such order"))
		return errBusy
	}))
	settlement := w.childOf(w.one("process "+w.Topic), "bury "+w.Topic)
	assert.Equal(t, true, attrs(settlement)["messaging.redisdelay.dead_message"])
}

func TestAPanicOfAHandlerEndsTheSpanAndPropagates(t *testing.T) {
	for _, deferred := range []bool{false, true} {
		w := watch(t)
		messages := w.Subscribe()
		w.send(message.NewMessage("a", nil))
		assert.PanicsWithValue(t, "oops", func() {
			_ = w.handle(messages, func(msg *message.Message) error {
				if deferred { // which is no failure by itself
					require.NoError(t, fixture.Delivery(t, msg).Defer(delay.For(time.Hour)))
				}
				panic("oops")
			})
		})
		handling := w.one("process " + w.Topic)
		assert.Equal(t, codes.Error, handling.Status.Code)
		assert.Equal(t, "panic", attrs(handling)["error.type"])
	}
}

// A handler that returns as soon as its context ends may do so before the observer hears of the loss: this one
// waits for that, too.
func TestALostLeaseIsReported(t *testing.T) {
	w := watch(t)
	heard, hear := context.WithCancel(t.Context())
	messages := w.Subscribe(func(c *redisdelay.SubscriberConfig) {
		c.LeaseDuration = 300 * time.Millisecond
		c.Observer = observe.Join(w.telemetry.Observer(), observe.Observer{LeaseLost: func(observe.LeaseLost) { hear() }})
	})
	msg := fixture.Keyed("a", "k", 0)
	publisher := w.Publisher()
	require.NoError(t, w.telemetry.Publisher(publisher).Publish(w.Topic, msg))
	require.NoError(t, w.handle(messages, func(msg *message.Message) error {
		_, err := publisher.Cancel(context.Background(), w.Topic, "k")
		<-msg.Context().Done()
		w.Ended(heard, context.Canceled)
		return err
	}))
	assert.Equal(t, true, attrs(w.one("ack " + w.Topic))["messaging.redisdelay.stale"])
	assert.Equal(t, true, attrs(w.one("process " + w.Topic))["messaging.redisdelay.lease_lost"])
}

func TestAStaleSettlementMakesNoDeadMessage(t *testing.T) {
	for name, decide := range map[string]func(redisdelay.Delivery){
		"nack": func(redisdelay.Delivery) {},
		"bury": func(d redisdelay.Delivery) { assert.NoError(t, d.Bury("no such order")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(t)
			messages := w.Subscribe(w.observed)
			publisher := w.Publisher()
			require.NoError(t, w.telemetry.Publisher(publisher).Publish(w.Topic, fixture.Keyed("a", "k", 0)))
			require.Error(t, w.handle(messages, func(msg *message.Message) error {
				decide(fixture.Delivery(t, msg))
				_, err := publisher.Cancel(context.Background(), w.Topic, "k")
				require.NoError(t, err)
				return errBusy
			}))
			got := attrs(w.one(name + " " + w.Topic))
			assert.Equal(t, true, got["messaging.redisdelay.stale"])
			assert.NotContains(t, got, "messaging.redisdelay.dead_message")
		})
	}
}

// A settlement begins when the handler has called Ack or Nack: as long after the beginning of
// the handling as Took says.
func TestASettlementBeginsWithTheAck(t *testing.T) {
	for name, took := range map[string]time.Duration{"when it was": time.Microsecond, "not after its end": time.Hour} {
		t.Run(name, func(t *testing.T) {
			w := watch(t)
			o := w.telemetry.Observer() // of no subscriber
			messages := w.Subscribe()
			w.send(message.NewMessage("a", nil))
			var d redisdelay.Delivery
			require.NoError(t, w.handle(messages, func(msg *message.Message) error {
				d = fixture.Delivery(t, msg)
				return nil
			}))
			o.Settled(observe.Settled{
				Place: observe.Place{Topic: d.Topic, Group: d.Group}, ID: d.ID, Token: d.Token, Settlement: observe.Acked, Took: took,
			})
			settlement := w.one("ack " + w.Topic)
			want := w.one("process " + w.Topic).StartTime.Add(took)
			if took == time.Hour {
				want = settlement.EndTime
			}
			assert.True(t, want.Equal(settlement.StartTime), "want %s, got %s", want, settlement.StartTime)
		})
	}
}

func TestAFailedPublishCallHasAnErrorType(t *testing.T) {
	w := watch(t)
	publisher := w.Publisher()
	require.NoError(t, publisher.Close())
	require.ErrorIs(t, w.telemetry.Publisher(publisher).Publish(w.Topic, message.NewMessage("a", nil)), redisdelay.ErrPublisherClosed)
	send := w.one("send " + w.Topic)
	assert.Equal(t, codes.Error, send.Status.Code)
	assert.Equal(t, "redisdelay.ErrPublisherClosed", attrs(send)["error.type"])
}

func TestConfigErrorsNameTheField(t *testing.T) {
	_, err := redisdelayotel.New(redisdelayotel.Config{ChildWithin: -time.Second})
	var wrong *redisdelay.ConfigError
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, redisdelay.ConfigError{Field: "ChildWithin", Problem: "is -1s, want 0 or more"}, *wrong)
}

// TestWithoutATopicThereIsNoDestination: neither a span nor its metrics have an empty one.
func TestWithoutATopicThereIsNoDestination(t *testing.T) {
	w := watch(t)
	_, err := w.telemetry.Middleware(created)(message.NewMessage("a", nil))
	require.NoError(t, err)
	assert.NotContains(t, attrs(w.one("process")), "messaging.destination.name")
	series := w.series()
	assert.NotEmpty(t, series)
	for name := range series {
		assert.NotContains(t, name, "messaging.destination.name")
	}
}
