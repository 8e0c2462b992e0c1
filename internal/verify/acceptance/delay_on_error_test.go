package acceptance

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/components/requeuer"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

var growing = middleware.DelayOnError{InitialInterval: 100 * time.Millisecond, MaxInterval: time.Minute, Multiplier: 2}

func fails(*message.Message) ([]*message.Message, error) { return nil, assert.AnError }

// madeDelay is the delay that a middleware has given to a message.
func madeDelay(t *testing.T, msg *message.Message) time.Duration {
	t.Helper()
	made, err := time.ParseDuration(msg.Metadata.Get(delay.DelayedForKey))
	require.NoError(t, err)
	return made
}

// byDefault gives a delay to whatever has none.
func byDefault(given time.Duration) func(*redisdelay.PublisherConfig) {
	return func(c *redisdelay.PublisherConfig) {
		c.Delay.DefaultDelayGenerator = func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) { return delay.For(given), nil }
	}
}

// TestDelayOnErrorBeginsWithItsInitialIntervalAfterADelayThatThePublisherGave for each way to give one.
func TestDelayOnErrorBeginsWithItsInitialIntervalAfterADelayThatThePublisherGave(t *testing.T) {
	const given = 700 * time.Millisecond
	ways := map[string]struct {
		config func(*redisdelay.PublisherConfig)
		change func(*message.Message)
	}{
		"none":      {nil, func(*message.Message) {}},
		"For":       {nil, func(msg *message.Message) { delay.Message(msg, delay.For(given)) }},
		"Until":     {nil, func(msg *message.Message) { delay.Message(msg, delay.Until(time.Now().Add(given))) }},
		"the past":  {nil, func(msg *message.Message) { delay.Message(msg, delay.For(-time.Hour)) }},
		"for alone": {nil, func(msg *message.Message) { msg.Metadata.Set(delay.DelayedForKey, given.String()) }},
		"a context": {nil, func(msg *message.Message) { msg.SetContext(delay.WithContext(msg.Context(), delay.For(given))) }},
		"a default": {byDefault(given), func(*message.Message) {}},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			s := fixture.New(t)
			p := s.Publisher()
			if way.config != nil {
				p = s.Publisher(way.config)
			}
			messages := s.Subscribe()
			msg := message.NewMessage("a", nil)
			way.change(msg)
			require.NoError(t, p.Publish(s.Topic, msg))
			for _, want := range []time.Duration{100, 200, 400} {
				msg := s.Next(messages)
				before := s.Now()
				_, err := growing.Middleware(fails)(msg)
				require.Error(t, err)
				assert.Equal(t, want*time.Millisecond, madeDelay(t, msg))
				msg.Nack()
				again := s.Next(messages)
				due := fixture.Delivery(t, again).DueAt.Sub(before)
				assert.GreaterOrEqual(t, due, want*time.Millisecond)
				again.Nack() // its metadata stay: the next failure grows from them
			}
		})
	}
}

// TestAReminderInAMonthIsRetriedSoon also after it was put off, and after other failures.
func TestAReminderInAMonthIsRetriedSoon(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe()
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "k", 30*24*time.Hour)))
	require.NoError(t, fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, "k", delay.For(0))))
	msg := s.Next(messages)
	until, err := time.Parse(time.RFC3339, msg.Metadata.Get(delay.DelayedUntilKey))
	require.NoError(t, err, "for when it was meant can still be read")
	assert.WithinDuration(t, time.Now().Add(30*24*time.Hour), until, time.Minute)
	msg.Nack()
	msg = s.Next(messages)
	require.NoError(t, fixture.Delivery(t, msg).Defer(delay.For(time.Millisecond)))
	msg.Metadata.Set("note", "kept")
	msg.Nack()
	msg = s.Next(messages)
	require.Equal(t, "kept", msg.Metadata.Get("note"))
	_, err = growing.Middleware(fails)(msg)
	require.Error(t, err)
	assert.Equal(t, growing.InitialInterval, madeDelay(t, msg))
	msg.Nack()
	s.Expect(messages, "a")
	s.Settled()
}

// TestDelayOnErrorGrowsThroughARequeuer has the delay made by DelayOnError inside a poison queue:
// the message waits in the poison topic, and the requeuer brings it back with its delay as it was.
func TestDelayOnErrorGrowsThroughARequeuer(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	p := s.Publisher()
	poisoned := s.Topic + "/poison"
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Second}, s.Log)
	require.NoError(t, err)
	poison, err := middleware.PoisonQueue(p, poisoned)
	require.NoError(t, err)
	delayOnError := growing
	type seen struct {
		after string
		at    time.Time
	}
	got := make(chan seen, 10)
	router.AddConsumerHandler("orders", s.Topic, s.Subscriber(), func(msg *message.Message) error {
		got <- seen{msg.Metadata.Get(delay.DelayedForKey), s.Now()}
		return assert.AnError
	}).AddMiddleware(poison, delayOnError.Middleware)
	_, err = requeuer.NewRequeuer(requeuer.Config{
		Subscriber: s.Subscriber(), SubscribeTopic: poisoned, Publisher: p, Router: router,
		GeneratePublishTopic: func(requeuer.GeneratePublishTopicParams) (string, error) { return s.Topic, nil },
	}, watermill.NopLogger{})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()
	require.NoError(t, p.Publish(s.Topic, fixture.Delayed("a", 700*time.Millisecond)))
	var last seen
	for i, want := range []time.Duration{0, 100, 200, 400} {
		select {
		case now := <-got:
			if i > 0 {
				made, err := time.ParseDuration(now.after)
				require.NoError(t, err)
				assert.Equal(t, want*time.Millisecond, made)
				assert.GreaterOrEqual(t, now.at.Sub(last.at), want*time.Millisecond)
			}
			last = now
		case <-time.After(fixture.Soon):
			require.Fail(t, "no message")
		}
	}
	stop()
	require.NoError(t, <-ended)
}

// TestAMessageThatItsHandlerPublishesAgainKeepsWhoseItsDelayIs: the publisher's, or its own.
func TestAMessageThatItsHandlerPublishesAgainKeepsWhoseItsDelayIs(t *testing.T) {
	t.Parallel() // it mostly waits
	const given = 300 * time.Millisecond
	ways := map[string]struct {
		change func(*message.Message)
		want   time.Duration
	}{
		"with the publisher's delay":               {func(*message.Message) {}, growing.InitialInterval},
		"with a delay that the handler has made":   {func(msg *message.Message) { delay.Message(msg, delay.For(given)) }, 2 * given},
		"with a delay from the context":            {func(msg *message.Message) { msg.Metadata = message.Metadata{} }, growing.InitialInterval},
		"with a delay that DelayOnError has made":  {func(msg *message.Message) { _, _ = growing.Middleware(fails)(msg) }, 2 * growing.InitialInterval},
		"as another message, with a delay its own": {func(msg *message.Message) { msg.UUID = "b"; delay.Message(msg, delay.For(given)) }, growing.InitialInterval},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			p := s.Publisher()
			messages, err := s.Subscriber().Subscribe(delay.WithContext(t.Context(), delay.For(given)), s.Topic)
			require.NoError(t, err)
			require.NoError(t, p.Publish(s.Topic, fixture.Delayed("a", 20*time.Millisecond)))
			msg := s.Next(messages)
			way.change(msg)
			before := msg.Metadata.Get(delay.DelayedForKey)
			require.NoError(t, p.Publish(s.Topic, msg))
			if before != "" {
				assert.Equal(t, before, msg.Metadata.Get(delay.DelayedForKey), "the publisher changes nothing in the message")
			}
			msg.Ack()
			again := s.Next(messages)
			_, err = growing.Middleware(fails)(again)
			require.Error(t, err)
			assert.Equal(t, way.want, madeDelay(t, again))
			again.Ack()
		})
	}
}

// TestADelayThatAPublisherGivesToADeliveredMessageIsNotThatOfItsRetry, nor one that a handler has made.
func TestADelayThatAPublisherGivesToADeliveredMessageIsNotThatOfItsRetry(t *testing.T) {
	t.Parallel() // it mostly waits
	ways := map[string]func(p *redisdelay.Publisher, topic string, msg *message.Message) error{
		"Publish": func(p *redisdelay.Publisher, topic string, msg *message.Message) error { return p.Publish(topic, msg) },
		"PublishAsync": func(p *redisdelay.Publisher, topic string, msg *message.Message) error {
			return p.PublishAsync(topic, msg).Wait(t.Context())
		},
	}
	for name, publish := range ways {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			soon, late := s.Beside(".soon"), s.Beside(".late")
			messages := s.Subscribe()
			s.Publish("a")
			msg := s.Next(messages)
			require.NoError(t, publish(s.Publisher(byDefault(time.Hour)), late.Topic, msg))
			require.NoError(t, publish(s.Publisher(byDefault(50*time.Millisecond)), soon.Topic, msg))
			due := s.Client.ZRangeWithScores(t.Context(), late.Key("scheduled"), 0, -1).Val()
			require.Len(t, due, 1)
			assert.Greater(t, due[0].Score, float64(s.Now().Add(time.Minute).UnixMilli()), "it waits there")
			msg.Nack()
			s.Expect(messages, "a")
			msg = soon.Next(soon.Subscribe())
			_, err := growing.Middleware(fails)(msg)
			require.Error(t, err)
			assert.Equal(t, growing.InitialInterval, madeDelay(t, msg))
			msg.Ack()
		})
	}
}
