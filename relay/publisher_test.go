package relay_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/fixture"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

func TestOnlyMessagesWithADelayWait(t *testing.T) {
	s := newScene(t)
	publisher := s.publisher()
	inContext := message.NewMessage("by its context", nil)
	inContext.SetContext(delay.WithContext(t.Context(), delay.For(time.Hour)))
	require.NoError(t, publisher.Publish(s.Topic,
		fixture.Delayed("1", 0), fixture.Delayed("a", time.Hour), fixture.Delayed("2", 0),
		fixture.Delayed("over", -time.Second), fixture.Delayed("b", time.Hour), inContext,
	))
	assert.Equal(t, []string{"1", "2", "over"}, s.target.uuids())
	assert.Equal(t, 1, s.target.tried(), "in one call")
	assert.EqualValues(t, 3, s.Client.ZCard(t.Context(), s.Key("scheduled")).Val())
	assert.Equal(t, []string{"relay"}, s.Client.SMembers(t.Context(), s.Key("groups")).Val())

	require.NoError(t, publisher.Publish(s.Topic))
	assert.Equal(t, redisdelay.ErrEmptyTopic, publisher.Publish("", fixture.Delayed("1", 0)))
	assert.Equal(t, redisdelay.ErrNilMessage, publisher.Publish(s.Topic, nil))
}

func TestADefaultDelayCounts(t *testing.T) {
	s := newScene(t)
	publisher := s.publisher(func(c *redisdelay.PublisherConfig) {
		c.Delay.DefaultDelayGenerator = func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) {
			return delay.For(time.Hour), nil
		}
	})
	require.NoError(t, publisher.Publish(s.Topic, fixture.Delayed("m", 0)))
	assert.Empty(t, s.target.uuids())
	assert.EqualValues(t, 1, s.Client.ZCard(t.Context(), s.Key("scheduled")).Val())
}

// TestNothingGoesPastTheRelay: another group that handles a message does not end it for the
// relay, which has not run yet.
func TestNothingGoesPastTheRelay(t *testing.T) {
	s := newScene(t)
	other := s.Subscribe()
	require.NoError(t, s.publisher().Publish(s.Topic, fixture.Delayed("m", 20*time.Millisecond)))
	s.Expect(other, "m")
	s.run()
	s.gets("m")
}

func TestCancelAndRescheduleWorkUntilAMessageIsHandedOn(t *testing.T) {
	s := newScene(t)
	publisher := s.publisher()
	s.run()
	require.NoError(t, publisher.Publish(s.Topic,
		fixture.Keyed("cancelled", "a", time.Hour), fixture.Keyed("earlier", "b", time.Hour)))
	standing, err := publisher.Cancel(t.Context(), s.Topic, "a")
	require.NoError(t, err)
	assert.True(t, standing.Scheduled)
	_, err = publisher.Reschedule(t.Context(), s.Topic, "b", delay.For(10*time.Millisecond))
	require.NoError(t, err)
	s.gets("earlier")
	s.until("the key is free", func() bool {
		_, err = publisher.Cancel(t.Context(), s.Topic, "b")
		return errors.Is(err, redisdelay.ErrMessageNotFound)
	})
}

func TestAFailingTargetIsToldApartFromAFailingRedis(t *testing.T) {
	s := newScene(t)
	publisher := s.publisher()
	s.target.refusing(func(string, []*message.Message) error { return errDown })
	assert.Equal(t, errDown, publisher.Publish(s.Topic, fixture.Delayed("1", 0)), "only for the target")

	err := publisher.Publish(s.Topic, fixture.Delayed("1", 0), fixture.Delayed("a", time.Hour), fixture.Delayed("2", 0))
	var partial *redisdelay.PartialPublishError
	require.ErrorAs(t, err, &partial)
	assert.Equal(t, redisdelay.PartialPublishError{Stored: 1, Total: 3, Missing: []int{0, 2}, Err: errDown}, *partial)
	require.ErrorIs(t, err, errDown)
	assert.EqualValues(t, 1, s.Client.ZCard(t.Context(), s.Key("scheduled")).Val())

	s.target.refusing(nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late := fixture.Delayed("b", time.Hour)
	late.SetContext(ended)
	require.ErrorIs(t, publisher.Publish(s.Topic, fixture.Delayed("3", 0), late), context.Canceled)
	assert.Empty(t, s.target.uuids(), "nothing goes to the target before the rest is stored")
}

func TestCloseClosesBothPublishers(t *testing.T) {
	s := newScene(t)
	publisher := s.publisher()
	require.NoError(t, publisher.Close())
	require.NoError(t, publisher.Close())
	assert.True(t, s.target.closed)
	assert.Equal(t, redisdelay.ErrPublisherClosed, publisher.Publish(s.Topic, fixture.Delayed("a", time.Hour)))
}

func TestBadConfigsAreRefused(t *testing.T) {
	s := newScene(t)
	delayed := s.Publisher()
	for field, config := range map[string]relay.PublisherConfig{
		"Target":        {Delayed: delayed},
		"Delayed":       {Target: s.target},
		"ConsumerGroup": {Target: s.target, Delayed: delayed, ConsumerGroup: redisdelay.Broadcast},
	} {
		_, err := relay.NewPublisher(config)
		var bad *redisdelay.ConfigError
		require.ErrorAs(t, err, &bad, field)
		assert.Equal(t, field, bad.Field)
	}
}
