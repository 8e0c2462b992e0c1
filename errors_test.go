package redisdelay_test

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestADuplicateErrorNamesItsKeyAndMessage(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	p := s.Publisher()
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("first", "order-42", time.Hour)))
	err := p.Publish(s.Topic, message.NewMessage("other", nil), fixture.Keyed("second", "order-42", time.Hour))
	require.ErrorIs(t, err, redisdelay.ErrDuplicateMessage)
	assert.ErrorContains(t, err, `message "second"`)
	assert.ErrorContains(t, err, `"order-42"`)
	assert.NotContains(t, err.Error(), "other")
}

func TestKeyErrorsNameTheKeyAndTheProblem(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	p := s.Publisher()
	key := "invoice-" + strings.Repeat("x", 100_000)
	for verb, err := range map[string]error{
		"publish":    p.Publish(s.Topic, fixture.Keyed("a", key, 0)),
		"cancel":     fixture.ErrOf(p.Cancel(t.Context(), s.Topic, key)),
		"reschedule": fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, key, delay.For(0))),
	} {
		require.ErrorIs(t, err, redisdelay.ErrInvalidKey, verb)
		assert.ErrorContains(t, err, "100008 bytes, at most 512", verb)
		assert.ErrorContains(t, err, "invoice-", verb)
		assert.Less(t, len(err.Error()), 500, verb)
	}
	require.EqualError(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "")), "redisdelay: cancel: invalid message key: it is empty")
	for verb, err := range map[string]error{
		"cancel":     fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")),
		"reschedule": fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, "k", delay.For(0))),
	} {
		want := fmt.Sprintf("redisdelay: %s %q in %q: there is no such message", verb, "k", s.Topic)
		require.EqualError(t, err, want)
	}
}

func TestConnectionErrorsNameTheCause(t *testing.T) {
	server, trusted := redistest.NewTLS(t)
	plain := redistest.Shared(t)
	tests := map[string]struct {
		options redis.Options
		text    string
	}{
		"nobody listens":             {redis.Options{Addr: "127.0.0.1:1"}, "connection refused"},
		"TLS on a port without":      {redis.Options{Addr: plain.Addr, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}}, "does its port expect TLS?"},
		"no TLS on a port with TLS":  {redis.Options{Addr: server.Addr}, "EOF"},
		"no such host":               {redis.Options{Addr: "redis.invalid:6379"}, "redis.invalid"},
		"a server name that differs": {redis.Options{Addr: server.Addr, TLSConfig: otherName(trusted)}, "wanted to match redis.example.com"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&test.options)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			s := fixture.NewWith(t, client)
			p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.PublishTimeout = 4 * time.Second })
			err := p.Publish("orders", message.NewMessage("a", nil))
			require.ErrorContains(t, err, test.text)
			assert.True(t, strings.HasPrefix(err.Error(), `redisdelay: publish to "orders": not stored: `), "%v", err)
			assert.NotContains(t, err.Error(), "partitions of the topic")
			assert.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
		})
	}
}

func otherName(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.ServerName = "redis.example.com"
	return config
}

func TestPanicsInConfigFunctionsAreErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*redisdelay.PublisherConfig){
		"Marshaler": func(c *redisdelay.PublisherConfig) { c.Marshaler = panickyMarshaler{} },
		"PartitionKey": func(c *redisdelay.PublisherConfig) {
			c.PartitionKey = func(string, *message.Message) string { panic(errMarshal) }
		},
		"DefaultDelayGenerator": func(c *redisdelay.PublisherConfig) {
			c.Delay.DefaultDelayGenerator = func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) { panic(errMarshal) }
		},
	}
	for name, config := range tests {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			err := s.Publisher(config).Publish(s.Topic, message.NewMessage("a", nil))
			var panicked *redisdelay.PanicError
			require.ErrorAs(t, err, &panicked)
			require.ErrorIs(t, err, errMarshal)
			assert.Contains(t, string(panicked.Stack), "errors_test.go")
			assert.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
			assert.Empty(t, s.Kinds())
		})
	}
}

type panickyMarshaler struct{}

func (panickyMarshaler) Marshal(string, *message.Message) ([]byte, error) { panic(errMarshal) }
