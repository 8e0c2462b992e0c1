package redisdelay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestPublishersOfRequestsLeaveNothingBehind but their messages.
func TestPublishersOfRequestsLeaveNothingBehind(t *testing.T) {
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
