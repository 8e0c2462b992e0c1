package redisdelay_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestNackDelaySetsTheDelayOfARedelivery(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	var mu sync.Mutex
	var attempts []int
	retried := make(retries, 10)
	messages := s.Subscribe(retried.observe, func(c *subConfig) {
		c.NackDelay = func(attempt int) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, attempt)
			return time.Duration(attempt) * 150 * time.Millisecond
		}
	})
	s.Publish("a")
	for n := range 2 {
		msg := s.Next(messages)
		start, want := time.Now(), time.Duration(n+1)*150*time.Millisecond
		msg.Nack()
		assert.Equal(t, want, retried.next(t))
		messages = prepend(s.Next(messages), messages)
		assert.GreaterOrEqual(t, time.Since(start), want)
	}
	s.Expect(messages, "a")
	s.Settled()
	assert.Equal(t, []int{1, 2}, attempts)
}

// retries has how long the messages that handlers gave back were to wait.
type retries chan time.Duration

// observe is an option for a subscriber.
func (r retries) observe(c *subConfig) {
	c.Observer.Settled = func(e observe.Settled) {
		if e.Settlement == observe.Nacked || e.Settlement == observe.Deferred {
			r <- e.RetryIn
		}
	}
}

func (r retries) next(t *testing.T) time.Duration {
	t.Helper()
	select {
	case in := <-r:
		return in
	case <-time.After(fixture.Soon):
		require.Fail(t, "no message was given back")
		return 0
	}
}

func TestRedeliveryDelaysHaveAMinimum(t *testing.T) {
	t.Parallel()
	delays := map[string]func(c *subConfig) func(msg *message.Message){
		"NackDelay": func(c *subConfig) func(*message.Message) {
			c.NackDelay = func(int) time.Duration { return -time.Hour }
			return func(*message.Message) {}
		},
		"delay metadata": func(*subConfig) func(*message.Message) {
			return func(msg *message.Message) { delay.Message(msg, delay.For(0)) }
		},
	}
	for name, arrange := range delays {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			var before func(*message.Message)
			messages := s.Subscribe(func(c *subConfig) { before = arrange(c) })
			s.Publish("a")
			msg := s.Next(messages)
			before(msg)
			start := time.Now()
			msg.Nack()
			s.Next(messages).Ack()
			assert.GreaterOrEqual(t, time.Since(start), redisdelay.MinRedeliveryDelay)
		})
	}
}

func TestDelayOnErrorKeepsItsDelayAndMetadata(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	retried := make(retries, 10)
	messages := s.Subscribe(retried.observe, func(c *subConfig) {
		c.NackDelay = func(int) time.Duration { return time.Hour }
	})
	s.Publish("a")
	failing := (&middleware.DelayOnError{
		InitialInterval: 200 * time.Millisecond, MaxInterval: 500 * time.Millisecond, Multiplier: 2,
	}).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		msg.Metadata.Set("note", msg.Metadata.Get("note")+"x")
		return nil, assert.AnError
	})
	for i, want := range []time.Duration{200, 400, 500, 500} {
		msg := s.Next(messages)
		assert.Equal(t, "xxxx"[:i], msg.Metadata.Get("note"), "changed metadata is kept")
		start := time.Now()
		_, err := failing(msg)
		require.Error(t, err)
		msg.Nack()
		in := retried.next(t)
		assert.LessOrEqual(t, in, want*time.Millisecond)
		assert.GreaterOrEqual(t, in, want*time.Millisecond-time.Since(start), "what is left of the delay")
		next := s.Next(messages)
		assert.GreaterOrEqual(t, time.Since(start), want*time.Millisecond)
		assert.Equal(t, i+2, fixture.Delivery(t, next).Attempt)
		if i == 3 {
			assert.Equal(t, "payload of a", string(next.Payload))
			next.Ack()
			return
		}
		messages = prepend(next, messages)
	}
}

// prepend is a channel that starts with a message.
func prepend(first *message.Message, rest <-chan *message.Message) <-chan *message.Message {
	out := make(chan *message.Message, 1)
	out <- first
	go func() {
		defer close(out)
		for msg := range rest {
			out <- msg
		}
	}()
	return out
}

// TestANackKeepsThePublishedPayload even if a middleware decrypts it in place.
func TestANackKeepsThePublishedPayload(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe()
	s.Publish("a")
	for n := range 3 {
		msg := s.Next(messages)
		require.Equal(t, "payload of a", string(msg.Payload))
		require.Equal(t, strings.Repeat("x", n), msg.Metadata.Get("tries"))
		copy(msg.Payload, "SECRET")
		msg.Payload = []byte("SECRET, and longer than it was")
		msg.Metadata.Set("tries", strings.Repeat("x", n+1))
		delay.Message(msg, delay.For(time.Millisecond))
		msg.Nack()
	}
	keys, err := s.Keys(t.Context())
	require.NoError(t, err)
	for _, key := range keys {
		if strings.HasSuffix(key, ":messages") || strings.Contains(key, ":changed:") {
			for _, value := range s.Client.HGetAll(t.Context(), key).Val() {
				assert.NotContains(t, value, "SECRET")
			}
		}
	}
	s.Expect(messages, "a")
	s.Settled()
}

func TestANackDropsMetadataThatIsTooLarge(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe()
	s.Publish("a")
	msg := s.Next(messages)
	msg.Metadata.Set("stack", strings.Repeat("x", 2<<20))
	delay.Message(msg, delay.For(time.Millisecond))
	msg.Nack()
	again := s.Next(messages)
	assert.Empty(t, again.Metadata.Get("stack"))
	assert.Equal(t, 1, s.Log.Count("metadata is too large"))
	again.Ack()
	s.Settled()
}

func TestAPanicInNackDelayFallsBackToTheDefault(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	retried := make(retries, 10)
	messages := s.Subscribe(retried.observe, func(c *subConfig) { c.NackDelay = func(int) time.Duration { panic("no idea") } })
	s.Publish("a")
	for n := range time.Duration(2) {
		s.Next(messages).Nack()
		in, least := retried.next(t), (n+1)*redisdelay.MinRedeliveryDelay
		assert.GreaterOrEqual(t, in, least)
		assert.LessOrEqual(t, in, least*3/2)
	}
	s.Expect(messages, "a")
	assert.Equal(t, 2, s.Log.Count("panic: no idea"), "%v", s.Log.Lines())
	s.Settled()
}

func TestBackoffGrowsFromTheInitialToTheLongestDelay(t *testing.T) {
	const s, forever = time.Second, time.Duration(math.MaxInt64)
	tests := map[string]struct {
		initial, longest time.Duration
		factor           float64
		attempt          int
		low, high        time.Duration
	}{
		"the first":                   {s, time.Minute, 2, 1, s, 1500 * time.Millisecond},
		"the third":                   {s, time.Minute, 2, 3, 4 * s, 6 * s},
		"a fraction":                  {s, time.Minute, 1.5, 3, 2250 * time.Millisecond, 3375 * time.Millisecond},
		"near the longest":            {s, 5 * s, 2, 3, 4 * s, 5 * s},
		"the longest":                 {s, 5 * s, 2, 9, 5 * s, 5 * s},
		"no attempt":                  {s, time.Minute, 2, 0, s, 1500 * time.Millisecond},
		"attempts below zero":         {s, time.Minute, 2, math.MinInt, s, 1500 * time.Millisecond},
		"very many attempts":          {s, forever, 2, math.MaxInt, forever, forever},
		"growing for very long":       {forever / 2, forever, 1.9, 2, forever / 2, forever},
		"an initial that is too low":  {-s, time.Minute, 2, 1, redisdelay.MinRedeliveryDelay, redisdelay.MinRedeliveryDelay * 3 / 2},
		"a longest below the initial": {s, time.Millisecond, 2, 4, s, s},
		"a factor below 1":            {s, time.Minute, 0.5, 4, s, 1500 * time.Millisecond},
		"a factor that is no number":  {s, time.Minute, math.NaN(), 4, s, 1500 * time.Millisecond},
		"a factor without end":        {s, time.Minute, math.Inf(1), 2, time.Minute, time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			delay := redisdelay.Backoff(test.initial, test.longest, test.factor)
			seen := map[time.Duration]struct{}{}
			for range 1000 {
				got := delay(test.attempt)
				assert.GreaterOrEqual(t, got, test.low)
				assert.LessOrEqual(t, got, test.high)
				seen[got] = struct{}{}
			}
			assert.Equal(t, test.low != test.high, len(seen) > 1, "it varies where it may")
		})
	}
}

// panicky panics on some bodies.
type panicky struct{ redisdelay.DefaultMarshaler }

func (p panicky) Unmarshal(topic string, body []byte) (*message.Message, error) {
	msg, err := p.DefaultMarshaler.Unmarshal(topic, body)
	if err == nil && msg.UUID == "bad" {
		panic("cannot stand it")
	}
	return msg, err
}

func TestAPanicInTheUnmarshalerDeadLettersOnlyItsMessage(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.Unmarshaler = panicky{} })
	s.Publish("good", "bad", "better")
	s.Expect(messages, "good", "better")
	assert.Equal(t, "cannot decode: panic: cannot stand it", dead.Messages(s, 1)[0].Reason)
	assert.Equal(t, 1, s.Log.Count("panicky"), "the log has the stack: %v", s.Log.Lines())
}

// quoting fails on some bodies, with an error that has the body in it, or whose text cannot be had.
type quoting struct{ redisdelay.DefaultMarshaler }

type noText struct{ text string }

func (e *noText) Error() string { return e.text }

func (q quoting) Unmarshal(topic string, body []byte) (*message.Message, error) {
	msg, err := q.DefaultMarshaler.Unmarshal(topic, body)
	switch {
	case err != nil:
	case len(msg.Payload) > 1<<20:
		err = errors.New(string(msg.Payload))
	case msg.UUID == "bad":
		err = (*noText)(nil)
	}
	return msg, err
}

func TestUnmarshalerErrorsMakeDeadMessagesWithAShortReason(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.Unmarshaler = quoting{} })
	large := message.NewMessage("large", bytes.Repeat([]byte{0xff}, 2<<20))
	require.NoError(t, s.Publisher().Publish(s.Topic, large))
	s.Publish("bad", "good")
	s.Expect(messages, "good")
	for _, entry := range dead.Messages(s, 2) {
		assert.True(t, strings.HasPrefix(entry.Reason, "cannot decode: "), "%.100q", entry.Reason)
		assert.LessOrEqual(t, len(entry.Reason), redisdelay.MaxReasonBytes)
	}
}
