package redisdelay_test

import (
	"context"
	"errors"
	"fmt"
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

func TestPublishNamesAKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	key := s.Key("scheduled")
	require.NoError(t, s.Client.Set(t.Context(), key, "x", 0).Err())
	err := s.Publisher().Publish(s.Topic, message.NewMessage("a", nil))
	var typeErr *redisdelay.KeyTypeError
	require.ErrorAs(t, err, &typeErr)
	assert.Equal(t, key, typeErr.Key)
	assert.Equal(t, []string{"scheduled"}, s.Kinds())
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

// TestATimeThatStandsAloneIsNoMissingDelay, whatever the generator and the context say.
func TestATimeThatStandsAloneIsNoMissingDelay(t *testing.T) {
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

// TestAMessageWithOnlyATimeIsDueAtOnceWhenItIsPublishedAgain, as others are.
func TestAMessageWithOnlyATimeIsDueAtOnceWhenItIsPublishedAgain(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) {
		c.Delay.DefaultDelayGenerator = func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) { return delay.For(time.Hour), nil }
	})
	messages := s.Subscribe()
	require.NoError(t, p.Publish(s.Topic, withMetadata("a", nil, delay.DelayedUntilKey, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))))
	for range 2 {
		msg := s.Next(messages)
		require.NoError(t, p.Publish(s.Topic, msg))
		msg.Ack()
	}
	s.Expect(messages, "a")
}

func TestALargeCallIsStoredInPartsInOrder(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	var uuids []string
	for i := range 2500 {
		uuids = append(uuids, fmt.Sprint(i))
	}
	s.Publish(uuids...)
	s.Expect(s.Subscribe(), uuids...)
	s.Settled()
}

func TestMessagesOfOnePublisherWithOneDelayKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	p := s.Publisher()
	var uuids []string
	for i := range 1000 {
		uuids = append(uuids, fmt.Sprint(i))
		require.NoError(t, p.Publish(s.Topic, fixture.Delayed(uuids[i], 1500*time.Millisecond)))
	}
	s.Expect(s.Subscribe(), uuids...)
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

func TestAPublisherTellsTheConfigInForce(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	config := s.Publisher().Config()
	assert.Equal(t, redisdelay.DefaultPrefix, config.Prefix)
	assert.Equal(t, s.Client, config.Client)
	assert.Positive(t, config.PublishTimeout)
}

// TestPublishersOfRequestsLeaveNothingBehind but their messages.
func TestPublishersOfRequestsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	s.Publish("a") // Redis has the scripts from then on
	for range 20 {
		publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: s.Client}, nil)
		require.NoError(t, err)
		require.NoError(t, publisher.Publish(s.Topic, fixture.Delayed("b", time.Hour)))
		require.NoError(t, publisher.Publish(s.Topic, fixture.Keyed("c", s.Topic, time.Hour)))
		_, err = publisher.Cancel(t.Context(), s.Topic, s.Topic)
		require.NoError(t, err)
		require.NoError(t, publisher.Close())
	}
	assert.LessOrEqual(t, s.Client.HLen(t.Context(), s.Key("publishers")).Val(), int64(2), "one has brought the script")
}

// TestSubscribersOfRequestsLeaveNoRecords of their claims.
func TestSubscribersOfRequestsLeaveNoRecords(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	s.Publish("a")
	for n := range 5 {
		subscriber := s.Subscriber()
		messages, err := subscriber.Subscribe(t.Context(), s.Topic)
		require.NoError(t, err)
		s.Next(messages).Ack()
		s.Publish(fmt.Sprint(n))
		require.NoError(t, subscriber.Close())
	}
	assert.LessOrEqual(t, s.Client.HLen(t.Context(), s.Key("claims:"+redisdelay.DefaultConsumerGroup)).Val(), int64(1), "one has brought the script")
}
