package acceptance

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// expiring is a message that expires at a time.
func expiring(uuid string, at time.Time) *message.Message {
	msg := message.NewMessage(uuid, nil)
	redisdelay.SetExpiration(msg, at)
	return msg
}

// publishExpired publishes messages that have expired.
func publishExpired(s *fixture.Scene, count int) {
	s.T.Helper()
	var list []*message.Message
	for n := range count {
		list = append(list, expiring(fmt.Sprint("expired-", n), s.Now()))
	}
	require.NoError(s.T, s.Publisher().Publish(s.Topic, list...))
}

func TestAnExpiredMessageIsNotDelivered(t *testing.T) {
	s := fixture.New(t)
	publishExpired(s, 50)
	require.NoError(t, s.Publisher().Publish(s.Topic, expiring("fresh", s.Now().Add(time.Hour))))
	messages := s.Subscribe()
	s.Expect(messages, "fresh")
	entries := dead.Messages(s, 50)
	for _, entry := range entries {
		assert.Equal(t, "expired", entry.Reason)
	}
	assert.Equal(t, 1, dead.Requeue(s, entries[0].ID)) // which does not move its expiration
	dead.Messages(s, 50)
	s.Idle(messages)
}

// TestExpiredMessagesMayBeDropped, and are claimed in batches, as those that handlers get.
func TestExpiredMessagesMayBeDropped(t *testing.T) {
	s := fixture.New(t)
	const count = 2000
	publishExpired(s, count)
	var claims, expired, others atomic.Int64
	messages := s.Subscribe(func(c *subConfig) {
		c.OnExpired = redisdelay.DropExpired
		c.Observer = observe.Observer{
			Called: func(c observe.Called) {
				if c.Script == "claim" {
					claims.Add(1)
				}
			},
			Settled: func(e observe.Settled) {
				switch {
				case e.Settlement == observe.Expired && !e.Stale:
					expired.Add(1)
				case e.Settlement != observe.Released: // a slow consumer releases messages that it claimed before a worker was free
					others.Add(1)
				}
			},
		}
	})
	s.Settled()
	require.Eventually(t, func() bool { return expired.Load() == count }, fixture.Soon, time.Millisecond)
	assert.Zero(t, others.Load())
	assert.Less(t, claims.Load(), int64(count/20))
	s.Idle(messages)
}

// TestAMessageMayExpireBeforeItsRetry, but not while its handler runs.
func TestAMessageMayExpireBeforeItsRetry(t *testing.T) {
	const lives = 100 * time.Millisecond
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) {
		c.MaxInFlight = 10
		c.NackDelay = func(int) time.Duration { return 2 * lives }
	})
	require.NoError(t, s.Publisher().Publish(s.Topic, expiring("kept", s.Now().Add(time.Hour))))
	kept := s.Next(messages)
	a := expiring("a", s.Now().Add(time.Hour))
	require.NoError(t, s.Publisher().Publish(s.Topic, a))
	a = s.Next(messages)
	redisdelay.SetExpiration(a, s.Now().Add(lives)) // kept by a Nack with a delay in the metadata
	delay.Message(a, delay.For(lives))
	start := s.Now()
	require.Eventually(t, func() bool { return s.Now().Sub(start) >= 2*lives }, fixture.Soon, 5*time.Millisecond)
	require.NoError(t, a.Context().Err(), "its handler has it")
	a.Nack()
	assert.Equal(t, "expired", dead.Messages(s, 1)[0].Reason)
	kept.Nack()
	s.Expect(messages, "kept")
}

// TestARepublishedMessageDoesNotExpire: a poison queue would lose it. An expiration that the handler sets counts.
func TestARepublishedMessageDoesNotExpire(t *testing.T) {
	s := fixture.New(t)
	at := s.Now().Add(time.Hour)
	publisher := s.Publisher()
	require.NoError(t, publisher.Publish(s.Topic, expiring("a", at)))
	again := func(msg *message.Message) {
		t.Helper()
		require.NoError(t, publisher.Publish(s.Topic, msg))
		msg.Ack()
	}
	messages := s.Subscribe()
	expirationOf := func(msg *message.Message) time.Time {
		t.Helper()
		expires, err := redisdelay.Expiration(msg)
		require.NoError(t, err)
		return expires
	}
	msg := s.Next(messages)
	assert.True(t, expirationOf(msg).Equal(at))
	again(msg)
	msg = s.Next(messages)
	assert.Zero(t, expirationOf(msg))
	redisdelay.SetExpiration(msg, at)
	again(msg)
	msg = s.Next(messages)
	assert.True(t, expirationOf(msg).Equal(at))
	msg.Ack()
}
