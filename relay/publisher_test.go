package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

func TestOnlyMessagesWithADelayAreStored(t *testing.T) {
	t.Parallel()
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

// TestKeysApplyOnlyToMessagesWithADelay: other messages are not checked in Redis.
func TestKeysApplyOnlyToMessagesWithADelay(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	publisher := s.publisher()
	require.NoError(t, publisher.Publish(s.Topic, fixture.Keyed("first", "k", time.Hour)))
	require.ErrorIs(t, publisher.Publish(s.Topic, fixture.Keyed("second", "k", time.Hour)), redisdelay.ErrDuplicateMessage)
	require.NoError(t, publisher.Publish(s.Topic, fixture.Keyed("now", "k", 0)))
	assert.Equal(t, []string{"now"}, s.target.uuids())
	_, err := publisher.Cancel(t.Context(), s.Topic, "k")
	require.NoError(t, err, "the first one still waits")
}

func TestADefaultDelayIsApplied(t *testing.T) {
	t.Parallel()
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

// TestARelayThatStartsLateMissesNothing: another group that handles a message does not end it for the relay, which has not run yet.
func TestARelayThatStartsLateMissesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	other := s.Subscribe()
	require.NoError(t, s.publisher().Publish(s.Topic, fixture.Delayed("m", time.Second)))
	s.Expect(other, "m")
	s.run()
	s.gets("m")
}

// TestADeletedTopicIsRelayedAgain, also if another group is there before the relay.
func TestADeletedTopicIsRelayedAgain(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	publisher, now := s.publisher(), time.Now()
	publisher.SetClock(func() time.Time { return now })
	require.NoError(t, publisher.Publish(s.Topic, fixture.Delayed("deleted", time.Hour)))
	a, err := admin.New(admin.Config{Client: s.Client})
	require.NoError(t, err)
	require.NoError(t, a.DeleteTopic(t.Context(), s.Topic, admin.DeleteOptions{}))

	other := s.Subscribe()
	now = now.Add(5 * time.Second)
	require.NoError(t, publisher.Publish(s.Topic, fixture.Delayed("m", time.Second)))
	s.Expect(other, "m")
	s.run()
	s.gets("m")
}

func TestCancelAndRescheduleWorkUntilAMessageIsRelayed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	publisher := s.publisher()
	s.run()
	require.NoError(t, publisher.Publish(s.Topic,
		fixture.Keyed("cancelled", "a", time.Hour), fixture.Keyed("earlier", "b", time.Hour)))
	status, err := publisher.Cancel(t.Context(), s.Topic, "a")
	require.NoError(t, err)
	assert.True(t, status.Scheduled)
	_, err = publisher.Reschedule(t.Context(), s.Topic, "b", delay.For(10*time.Millisecond))
	require.NoError(t, err)
	s.gets("earlier")
	s.until("the key is free", func() bool {
		_, err = publisher.Cancel(t.Context(), s.Topic, "b")
		return errors.Is(err, redisdelay.ErrMessageNotFound)
	})
}

func TestPublishDistinguishesTargetAndRedisErrors(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	publisher := s.publisher()
	s.target.rejecting(func(string, []*message.Message) error { return errDown })
	assert.Equal(t, errDown, publisher.Publish(s.Topic, fixture.Delayed("1", 0)), "only for the target")

	err := publisher.Publish(s.Topic, fixture.Delayed("1", 0), fixture.Delayed("a", time.Hour), fixture.Delayed("2", 0))
	var partial *redisdelay.PartialPublishError
	require.ErrorAs(t, err, &partial)
	assert.Equal(t, redisdelay.PartialPublishError{Stored: 1, Total: 3, Missing: []int{0, 2}, Err: errDown}, *partial)
	require.ErrorIs(t, err, errDown)
	assert.EqualValues(t, 1, s.Client.ZCard(t.Context(), s.Key("scheduled")).Val())

	s.target.rejecting(nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late := fixture.Delayed("b", time.Hour)
	late.SetContext(ended)
	require.ErrorIs(t, publisher.Publish(s.Topic, fixture.Delayed("3", 0), late), context.Canceled)
	assert.Empty(t, s.target.uuids(), "nothing goes to the target before the rest is stored")
}

// withoutReplicas makes a publisher wait for a replica that is not there.
func withoutReplicas(c *redisdelay.PublisherConfig) {
	c.WaitReplicas, c.WaitTimeout = 1, time.Millisecond
}

func TestMessagesThatReplicasLackCountAsStored(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	publisher := s.publisher(withoutReplicas)
	var shortfall *redisdelay.ReplicationError
	require.ErrorAs(t, publisher.Publish(s.Topic, fixture.Delayed("1", 0), fixture.Delayed("a", time.Hour)), &shortfall)
	assert.Equal(t, []string{"1"}, s.target.uuids())

	s.target.rejecting(func(string, []*message.Message) error { return errDown })
	err := publisher.Publish(s.Topic, fixture.Delayed("b", time.Hour), fixture.Delayed("2", 0))
	var partial *redisdelay.PartialPublishError
	require.ErrorAs(t, err, &partial)
	assert.Equal(t, []int{1}, partial.Missing)
	require.ErrorIs(t, err, errDown)
	require.ErrorAs(t, err, &shortfall, "it tells both")
}

// TestAFailedPartitionIsReported, also if replicas lack the messages of the other one.
func TestAFailedPartitionIsReported(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	publisher := s.publisher(withoutReplicas, func(c *redisdelay.PublisherConfig) { c.Partitions = 2 })
	require.Error(t, publisher.Publish(s.Topic, fixture.Delayed("first", time.Hour)))
	require.NoError(t, s.Client.Del(t.Context(), s.Key("scheduled")).Err())
	require.NoError(t, s.Client.Set(t.Context(), s.Key("scheduled"), "of another program", 0).Err())

	call := []*message.Message{fixture.Delayed("due", 0)}
	for i := range 20 { // in both partitions
		call = append(call, fixture.Keyed(fmt.Sprint(i), fmt.Sprint("key ", i), time.Hour))
	}
	call = append(call, fixture.Delayed("due, too", 0))
	err := publisher.Publish(s.Topic, call...)
	var partial *redisdelay.PartialPublishError
	require.ErrorAs(t, err, &partial)
	assert.Empty(t, s.target.uuids(), "nothing goes to the target before the rest is stored")
	assert.Equal(t, 22, partial.Total)
	assert.Len(t, partial.Missing, 22-partial.Stored)
	assert.True(t, slices.IsSorted(partial.Missing))
	assert.Subset(t, partial.Missing, []int{0, 21})
}

func TestCloseClosesBothPublishers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	publisher := s.publisher()
	require.NoError(t, publisher.Close())
	require.NoError(t, publisher.Close())
	assert.True(t, s.target.closed)
	assert.Equal(t, redisdelay.ErrPublisherClosed, publisher.Publish(s.Topic, fixture.Delayed("a", time.Hour)))
}

func TestBadConfigsAreRefused(t *testing.T) {
	t.Parallel()
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
	_, err := relay.NewPublisher(relay.PublisherConfig{Target: s.target, Delayed: delayed, ConsumerGroup: redisdelay.AllGroups})
	require.ErrorAs(t, err, new(*redisdelay.ConfigError))
}
