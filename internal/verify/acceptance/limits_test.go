package acceptance

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

func TestLimitsMayBeChangedWhileConsumersWait(t *testing.T) {
	s := fixture.New(t)
	c := newControl(t, s)
	messages := s.Subscribe(func(c *subConfig) {
		c.MaxInFlight, c.PollInterval = 3, time.Hour
		c.GroupLimits = redisdelay.GroupLimits{MaxInFlight: 1}
	})
	other := s.Subscribe(func(c *subConfig) { c.PollInterval = time.Hour })
	for _, id := range []string{"a", "b", "c"} {
		s.Publish(id)
	}
	var first *message.Message
	select {
	case first = <-messages:
	case first = <-other:
	case <-time.After(fixture.Soon):
		t.Fatal("nothing came")
	}
	select {
	case msg := <-messages:
		t.Fatalf("%s is one more than the limit", msg.UUID)
	case msg := <-other:
		t.Fatalf("%s is one more than the limit", msg.UUID)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, c.LimitGroup(t.Context(), s.Topic, "default", redisdelay.GroupLimits{}))
	second := s.Next(messages)
	third := s.Next(messages)
	for _, msg := range []*message.Message{first, second, third} {
		msg.Ack()
	}
	s.Settled()
	err := c.LimitGroup(t.Context(), s.Topic, "default", redisdelay.GroupLimits{MaxInFlight: -1})
	var bad *redisdelay.ConfigError
	require.ErrorAs(t, err, &bad)
	assert.Equal(t, "GroupLimits.MaxInFlight", bad.Field)
	require.ErrorIs(t, c.LimitGroup(t.Context(), "unknown", "default", redisdelay.GroupLimits{}), redisdelay.ErrTopicNotFound)
}

func TestALimitBelowTheNumberOfPartitionsIsRefused(t *testing.T) {
	s := fixture.New(t)
	sub := s.Subscriber(func(c *subConfig) { c.GroupLimits = redisdelay.GroupLimits{MaxInFlight: 3} })
	_, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	start := time.Now()
	err = s.Publisher(fixture.Partitions(4)).Publish(s.Topic, message.NewMessage("a", nil))
	require.ErrorIs(t, err, redisdelay.ErrLimitTooLow)
	assert.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
	assert.Less(t, time.Since(start), 5*time.Second, "it does not try again")
	require.NoError(t, s.Publisher(fixture.Partitions(3)).Publish(s.Topic, message.NewMessage("b", nil)))

	low := s.Subscriber(func(c *subConfig) { c.GroupLimits = redisdelay.GroupLimits{Rate: redisdelay.Rate{Messages: 2}} })
	_, err = low.Subscribe(t.Context(), s.Topic)
	require.ErrorIs(t, err, redisdelay.ErrLimitTooLow)
}
