package redisdelay_test

import (
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
)

func TestNackDelayDecidesWhenAMessageComesBack(t *testing.T) {
	s := fixture.New(t)
	var mu sync.Mutex
	var attempts []int
	messages := s.Subscribe(func(c *subConfig) {
		c.NackDelay = func(attempt int) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, attempt)
			return 300 * time.Millisecond
		}
	})
	s.Publish("a")
	for range 2 {
		msg := s.Next(messages)
		start := time.Now()
		msg.Nack()
		msg = s.Next(messages)
		assert.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
		msg.Nack()
	}
	s.Next(messages).Ack()
	s.Settled()
	assert.Equal(t, []int{1, 2, 3, 4}, attempts)
}

func TestNoDelayIsBelowTheFloor(t *testing.T) {
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
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) {
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
		_, err := failing(msg)
		require.Error(t, err)
		start := time.Now()
		msg.Nack()
		next := s.Next(messages)
		assert.GreaterOrEqual(t, time.Since(start), want*time.Millisecond)
		assert.Less(t, fixture.Delivery(t, next).DueAt.Sub(start), (want+150)*time.Millisecond)
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

// TestANackKeepsThePayloadAsItWasPublished lets a middleware decrypt it in place.
func TestANackKeepsThePayloadAsItWasPublished(t *testing.T) {
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

func TestMetadataThatIsTooLargeIsNotKept(t *testing.T) {
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
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.NackDelay = func(int) time.Duration { panic("no idea") } })
	s.Publish("a")
	s.Next(messages).Nack()
	s.Expect(messages, "a")
	assert.Equal(t, 1, s.Log.Count("panic: no idea"))
	s.Settled()
}
