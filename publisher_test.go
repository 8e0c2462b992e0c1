package redisdelay_test

import (
	"context"
	"errors"
	"maps"
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

var errMarshal = errors.New("marshal")

type failingMarshaler struct{}

func (failingMarshaler) Marshal(string, *message.Message) ([]byte, error) { return nil, errMarshal }

func TestPublishRefusesBadInputAndStoresNothing(t *testing.T) {
	t.Parallel()
	good := message.NewMessage("good", nil)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	late := message.NewMessage("late", nil)
	late.SetContext(over)
	var delayErr *redisdelay.DelayError
	tests := map[string]struct {
		bad    *message.Message
		config func(*redisdelay.PublisherConfig)
		is     error
		as     any
	}{
		"nil message":             {bad: nil, is: redisdelay.ErrNilMessage},
		"malformed until":         {bad: withMetadata("bad", nil, delay.DelayedUntilKey, "tomorrow"), as: &delayErr},
		"malformed for":           {bad: withMetadata("bad", nil, delay.DelayedForKey, "30"), as: &delayErr},
		"endless for":             {bad: withMetadata("bad", nil, delay.DelayedForKey, "99999999h"), as: &delayErr},
		"payload too large":       {bad: message.NewMessage("bad", make([]byte, 4<<20)), is: redisdelay.ErrMessageTooLarge},
		"empty key":               {bad: withMetadata("bad", nil, redisdelay.KeyMetadata, ""), is: redisdelay.ErrInvalidKey},
		"long key":                {bad: withMetadata("bad", nil, redisdelay.KeyMetadata, strings.Repeat("k", 513)), is: redisdelay.ErrInvalidKey},
		"empty ordering key":      {bad: withMetadata("bad", nil, redisdelay.OrderingKeyMetadata, ""), is: redisdelay.ErrInvalidOrderingKey},
		"long ordering key":       {bad: withMetadata("bad", nil, redisdelay.OrderingKeyMetadata, strings.Repeat("k", redisdelay.MaxOrderingKeyBytes+1)), is: redisdelay.ErrInvalidOrderingKey},
		"empty expiration":        {bad: withMetadata("bad", nil, redisdelay.ExpirationMetadata, ""), is: redisdelay.ErrInvalidExpiration},
		"expiration in seconds":   {bad: withMetadata("bad", nil, redisdelay.ExpirationMetadata, "1796018400"), is: redisdelay.ErrInvalidExpiration},
		"marshaler fails":         {bad: good, config: func(c *redisdelay.PublisherConfig) { c.Marshaler = failingMarshaler{} }, is: errMarshal},
		"context that has ended":  {bad: late, is: context.Canceled},
		"the same key twice":      {bad: fixture.Keyed("bad", "k", 0), is: redisdelay.ErrDuplicateMessage},
		"delay generator refuses": {bad: good, config: refusingDelays, is: errMarshal},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			if test.config == nil {
				test.config = func(*redisdelay.PublisherConfig) {}
			}
			first := message.NewMessage("first", nil)
			if errors.Is(test.is, redisdelay.ErrDuplicateMessage) {
				first = fixture.Keyed("first", "k", 0)
			}
			err := s.Publisher(test.config).Publish(s.Topic, first, test.bad)
			if test.as != nil {
				require.ErrorAs(t, err, test.as)
			} else {
				require.ErrorIs(t, err, test.is)
			}
			assert.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
			assert.Empty(t, s.Kinds())
		})
	}
}

func refusingDelays(c *redisdelay.PublisherConfig) {
	c.Delay.DefaultDelayGenerator = func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) {
		return delay.Delay{}, errMarshal
	}
}

func TestPublishNeedsATopic(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	p := s.Publisher()
	require.ErrorIs(t, p.Publish("", message.NewMessage("a", nil)), redisdelay.ErrEmptyTopic)
	require.ErrorIs(t, fixture.ErrOf(p.Cancel(t.Context(), "", "k")), redisdelay.ErrEmptyTopic)
	require.NoError(t, p.Publish(s.Topic), "nothing to publish is no error")
}

func TestPublishAfterCloseFailsAndLeavesTheClientOpen(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	p := s.Publisher()
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	for name, err := range map[string]error{
		"Publish":                        p.Publish(s.Topic, message.NewMessage("a", nil)),
		"Publish of what is not encoded": p.Publish(s.Topic, fixture.Keyed("a", "", 0)),
		"Publish of nothing":             p.Publish(s.Topic),
		"Cancel":                         fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")),
		"Reschedule":                     fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, "k", delay.For(0))),
	} {
		assert.Equal(t, redisdelay.ErrPublisherClosed, err, "%s: the error itself", name)
	}
	require.NoError(t, s.Client.Ping(t.Context()).Err())
}

func TestDelayComesFromTheContextOrTheGenerator(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe()
	p := s.Publisher(func(c *redisdelay.PublisherConfig) {
		c.Delay.DefaultDelayGenerator = func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) {
			return delay.For(200 * time.Millisecond), nil
		}
	})
	fromContext := &message.Message{UUID: "context"} // without a metadata map
	fromContext.SetContext(delay.WithContext(context.Background(), delay.For(400*time.Millisecond)))
	start := s.Now()
	require.NoError(t, p.Publish(s.Topic, fromContext, message.NewMessage("generator", nil)))

	msg := s.Next(messages)
	assert.Equal(t, "generator", msg.UUID)
	assert.GreaterOrEqual(t, s.Now().Sub(start), 200*time.Millisecond)
	msg.Ack()
	msg = s.Next(messages)
	assert.Equal(t, "context", msg.UUID)
	assert.GreaterOrEqual(t, s.Now().Sub(start), 400*time.Millisecond)
	msg.Ack()
}

// TestADueTimeInMetadataOverridesOtherDelays, both of the generator and of the context.
func TestADueTimeInMetadataOverridesOtherDelays(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) {
		c.Delay.DefaultDelayGenerator = func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) { return delay.For(time.Millisecond), nil }
	})
	publish := map[string]func(*message.Message) error{
		"Publish": func(msg *message.Message) error { return p.Publish(s.Topic, msg) },
		"PublishAsync": func(msg *message.Message) error {
			future := p.PublishAsync(s.Topic, msg)
			<-future.Done()
			return future.Err()
		},
	}
	in := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for name, publish := range publish {
		msg := withMetadata(name, nil, delay.DelayedUntilKey, in.Format(time.RFC3339))
		msg.SetContext(delay.WithContext(context.Background(), delay.For(time.Millisecond)))
		before := maps.Clone(msg.Metadata)
		require.NoError(t, publish(msg))
		assert.Equal(t, before, msg.Metadata)
		var wrong *redisdelay.DelayError
		require.ErrorAs(t, publish(withMetadata("b", nil, delay.DelayedUntilKey, "tomorrow")), &wrong)
	}
	due, err := s.Client.ZRangeWithScores(t.Context(), s.Key("scheduled"), 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, due, 2)
	for _, z := range due {
		assert.InDelta(t, float64(in.UnixMilli()), z.Score, 60_000, "the clocks of this host and of Redis")
	}
}

func TestPublishFailsAtOnceOnAClosedClient(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	client := redistest.Shared(t).Client(t)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Client = client })
	require.NoError(t, client.Close())
	start := time.Now()
	require.ErrorIs(t, p.Publish(s.Topic, message.NewMessage("a", nil)), redis.ErrClosed)
	assert.Less(t, time.Since(start), 5*time.Second, "retrying cannot help")
}

func TestConfigReturnsTheEffectiveConfig(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	config := s.Publisher().Config()
	assert.Equal(t, redisdelay.DefaultPrefix, config.Prefix)
	assert.Equal(t, s.Client, config.Client)
	assert.Positive(t, config.PublishTimeout)
}
