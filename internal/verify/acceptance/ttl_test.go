package acceptance

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// living is a message with a time to live.
func living(uuid string, ttl time.Duration) *message.Message {
	msg := message.NewMessage(uuid, nil)
	redisdelay.SetTTL(msg, ttl)
	return msg
}

// stale publishes messages that are too old for any handler.
func stale(s *fixture.Scene, count int) {
	s.T.Helper()
	var list []*message.Message
	for n := range count {
		list = append(list, living(fmt.Sprint("stale-", n), time.Millisecond))
	}
	require.NoError(s.T, s.Publisher().Publish(s.Topic, list...))
	for published := s.Now(); s.Now().Sub(published) < 2*time.Millisecond; {
		continue
	}
}

func TestAStaleMessageIsNotHandedOut(t *testing.T) {
	s := fixture.New(t)
	stale(s, 50)
	require.NoError(t, s.Publisher().Publish(s.Topic, living("fresh", time.Hour)))
	messages := s.Subscribe()
	s.Expect(messages, "fresh")
	letters := dead.Letters(s, 50)
	for _, letter := range letters {
		assert.Equal(t, "expired", letter.Reason)
	}
	assert.Equal(t, 1, dead.Requeue(s, letters[0].ID)) // it is due anew, and too old a millisecond later
	dead.Letters(s, 50)
	s.Idle(messages)
}

func TestAStaleMessageMayBeDropped(t *testing.T) {
	s := fixture.New(t)
	stale(s, 100)
	var expired, others atomic.Int64
	messages := s.Subscribe(func(c *subConfig) {
		c.OnExpired = redisdelay.DropExpired
		c.Observer = observe.Observer{Settled: func(e observe.Settled) {
			if e.How == observe.Expired && !e.Stale {
				expired.Add(1)
			} else {
				others.Add(1)
			}
		}}
	})
	s.Settled()
	require.Eventually(t, func() bool { return expired.Load() == 100 }, fixture.Soon, time.Millisecond)
	assert.Zero(t, others.Load())
	s.Idle(messages)
}

// TestStaleMessagesAreClaimedInBatches, as those that handlers get.
func TestStaleMessagesAreClaimedInBatches(t *testing.T) {
	s := fixture.New(t)
	const count = 2000
	stale(s, count)
	var claims, expired atomic.Int64
	s.Subscribe(func(c *subConfig) {
		c.OnExpired = redisdelay.DropExpired
		c.Observer = observe.Observer{
			Called: func(c observe.Called) {
				if c.Script == "claim" {
					claims.Add(1)
				}
			},
			Settled: func(observe.Settled) { expired.Add(1) },
		}
	})
	s.Settled()
	require.Eventually(t, func() bool { return expired.Load() == count }, fixture.Soon, time.Millisecond)
	assert.Less(t, claims.Load(), int64(count/20))
}

// TestARetryMayBeTooLate, but a handler keeps what it has.
func TestARetryMayBeTooLate(t *testing.T) {
	const ttl = 100 * time.Millisecond
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) {
		c.MaxInFlight = 10
		c.NackDelay = func(int) time.Duration { return 2 * ttl }
	})
	require.NoError(t, s.Publisher().Publish(s.Topic, living("kept", time.Hour), living("a", ttl)))
	kept, a := s.Next(messages), s.Next(messages)
	assert.Equal(t, "a", a.UUID)
	for start := s.Now(); s.Now().Sub(start) < 2*ttl; {
		continue
	}
	require.NoError(t, a.Context().Err(), "its handler has it")
	a.Nack()
	assert.Equal(t, "expired", dead.Letters(s, 1)[0].Reason)
	kept.Nack()
	s.Expect(messages, "kept")
}

func TestABadTimeToLiveIsRefused(t *testing.T) {
	s := fixture.New(t)
	for _, ttl := range []time.Duration{0, -time.Second, time.Microsecond, 200 * 365 * 24 * time.Hour} {
		require.ErrorIs(t, s.Publisher().Publish(s.Topic, living("a", ttl)), redisdelay.ErrInvalidTTL)
	}
	msg := message.NewMessage("a", nil)
	msg.Metadata.Set(redisdelay.TTLMetadata, "soon")
	require.ErrorIs(t, s.Publisher().Publish(s.Topic, msg), redisdelay.ErrInvalidTTL)
	var bad *redisdelay.ConfigError
	_, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: s.Client, OnExpired: "ignore"}, nil)
	require.ErrorAs(t, err, &bad)
	assert.Equal(t, "OnExpired", bad.Field)
}
