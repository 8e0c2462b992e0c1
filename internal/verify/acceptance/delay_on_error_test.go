package acceptance

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
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

// TestDelayOnErrorIgnoresTheDelayOfThePublisher and begins with its initial interval, however the publisher gave its delay.
func TestDelayOnErrorIgnoresTheDelayOfThePublisher(t *testing.T) {
	const given = 700 * time.Millisecond
	ways := map[string]struct {
		config func(*redisdelay.PublisherConfig)
		change func(*message.Message)
	}{
		"none":      {nil, func(*message.Message) {}},
		"For":       {nil, func(msg *message.Message) { delay.Message(msg, delay.For(given)) }},
		"Until":     {nil, func(msg *message.Message) { delay.Message(msg, delay.Until(time.Now().Add(given))) }},
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
			for _, want := range []time.Duration{100, 200} {
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

// TestARepublishedMessageKeepsTheOriginOfItsDelay: the publisher, or DelayOnError.
func TestARepublishedMessageKeepsTheOriginOfItsDelay(t *testing.T) {
	t.Parallel() // it mostly waits
	const given = 300 * time.Millisecond
	ways := map[string]struct {
		change func(*message.Message)
		over   bool // the delay does not count again
		want   time.Duration
	}{
		"the publisher's":                     {func(*message.Message) {}, true, growing.InitialInterval},
		"made by the handler":                 {func(msg *message.Message) { delay.Message(msg, delay.For(given)) }, false, 2 * given},
		"from the context":                    {func(msg *message.Message) { msg.Metadata = message.Metadata{} }, false, growing.InitialInterval},
		"made by DelayOnError":                {func(msg *message.Message) { _, _ = growing.Middleware(fails)(msg) }, false, 2 * growing.InitialInterval},
		"another message, with its own delay": {func(msg *message.Message) { msg.UUID = "b"; delay.Message(msg, delay.For(given)) }, false, growing.InitialInterval},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			p := s.Publisher()
			messages, err := s.Subscriber().Subscribe(delay.WithContext(t.Context(), delay.For(given)), s.Topic)
			require.NoError(t, err)
			require.NoError(t, p.Publish(s.Topic, fixture.Delayed("a", 20*time.Millisecond)))
			msg := s.Next(messages)
			made := s.Now()
			way.change(msg)
			before := msg.Metadata.Get(delay.DelayedForKey)
			require.NoError(t, p.Publish(s.Topic, msg))
			if before != "" {
				assert.Equal(t, before, msg.Metadata.Get(delay.DelayedForKey), "the publisher changes nothing in the message")
			}
			published := s.Now()
			msg.Ack()
			again := s.Next(messages)
			if due := fixture.Delivery(t, again).DueAt; way.over {
				assert.False(t, due.After(published), "it is not delayed again")
			} else if before != "" { // the delay in the context counts from the beginning of the test
				assert.False(t, due.Before(made.Add(growing.InitialInterval)), "its new delay counts")
			}
			_, err = growing.Middleware(fails)(again)
			require.Error(t, err)
			assert.Equal(t, way.want, madeDelay(t, again))
			again.Ack()
		})
	}
}

// TestPublishDoesNotChangeADeliveredMessage: the default delay of another topic is not that of the next retry.
func TestPublishDoesNotChangeADeliveredMessage(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	soon, late := s.Beside(".soon"), s.Beside(".late")
	messages := s.Subscribe()
	original := fixture.Keyed("a", "k", 0)
	original.Metadata.Set(delay.DelayedForKey, "1s") // alone, it would count again
	require.NoError(t, s.Publisher().Publish(s.Topic, original))
	msg := s.Next(messages)
	require.NoError(t, s.Publisher().Publish(s.Topic, msg), "it is neither delayed nor a duplicate of itself")
	require.NoError(t, s.Publisher(byDefault(time.Hour)).PublishAsync(late.Topic, msg).Wait(t.Context()))
	require.NoError(t, s.Publisher(byDefault(50*time.Millisecond)).Publish(soon.Topic, msg))
	msg.Nack()
	s.Expect(messages, "a", "a")
	msg = soon.Next(soon.Subscribe())
	_, err := growing.Middleware(fails)(msg)
	require.Error(t, err)
	assert.Equal(t, growing.InitialInterval, madeDelay(t, msg))
	msg.Ack()
}
