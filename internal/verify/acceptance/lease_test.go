package acceptance

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestAHandlerMayTakeLongerThanItsLease(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	short := func(c *subConfig) { c.LeaseDuration = 6 * time.Second }
	messages, others := s.Subscribe(short), s.Subscribe(short)
	s.Publish("a")
	var msg *message.Message
	select {
	case msg = <-messages:
	case msg = <-others:
	case <-time.After(fixture.Soon):
		require.Fail(t, "no message")
	}
	select {
	case <-time.After(9 * time.Second):
	case <-messages:
		require.Fail(t, "redelivered")
	case <-others:
		require.Fail(t, "redelivered")
	case <-msg.Context().Done():
		require.Fail(t, "lease lost")
	}
	msg.Ack()
	s.Settled()
}

// cuttable returns a scene, and a client that can be cut off from Redis by its user's ACL.
func cuttable(t *testing.T) (s *fixture.Scene, client *redis.Client, connected func(bool)) {
	t.Helper()
	server := redistest.New(t)
	s = fixture.NewOn(t, server)
	redistest.Command(t, s.Client, "ACL", "SETUSER", "cut", "on", ">pw", "~*", "&*", "+@all")
	client = redis.NewClient(&redis.Options{Addr: server.Addr, Username: "cut", Password: "pw"})
	t.Cleanup(func() { _ = client.Close() })
	return s, client, func(connected bool) {
		rights := map[bool]string{true: "+@all", false: "-@all"}
		redistest.Command(t, s.Client, "ACL", "SETUSER", "cut", rights[connected])
	}
}

func TestALostLeaseEndsTheContextBeforeRedelivery(t *testing.T) {
	t.Parallel() // it mostly waits
	s, client, connected := cuttable(t)
	short := func(c *subConfig) { c.LeaseDuration = time.Second }
	messages := s.Subscribe(short, func(c *subConfig) { c.Client = client })
	s.Publish("a")
	msg := s.Next(messages)
	connected(false)

	other := s.Next(s.Subscribe(short))
	require.Error(t, msg.Context().Err(), "another consumer has the message while the first handler continues")
	s.Ended(msg.Context(), redisdelay.ErrLeaseLost)
	assert.Equal(t, int64(2), fixture.Delivery(t, other).Token)
	other.Ack()
	s.Settled()
}

// TestALateAckHasNoEffect: the first consumer is cut off beyond its lease, and acks while the second one works.
func TestALateAckHasNoEffect(t *testing.T) {
	t.Parallel() // it mostly waits
	s, client, connected := cuttable(t)
	settled := make(chan observe.Settled, 10)
	first := s.Subscribe(func(c *subConfig) {
		c.Client, c.LeaseDuration, c.Observer.Settled = client, time.Second, func(e observe.Settled) { settled <- e }
	})
	require.NoError(t, s.Publisher().Publish(s.Topic, of("key", "1"), of("key", "2")))
	late := s.Next(first)
	connected(false)
	second := s.Subscribe(func(c *subConfig) { c.MaxInFlight = 10 })
	current := s.Next(second)
	connected(true)

	late.Ack()
	select {
	case e := <-settled:
		assert.Equal(t, observe.Acked, e.Settlement)
		assert.True(t, e.Stale)
	case <-time.After(fixture.Soon):
		require.Fail(t, "not settled")
	}
	s.Idle(first)
	s.Idle(second)
	current.Nack()
	for _, want := range []string{"1", "2"} {
		var next *message.Message
		select {
		case next = <-first:
		case next = <-second:
		case <-time.After(fixture.Soon):
			require.Fail(t, "no message")
		}
		assert.Equal(t, want, next.UUID)
		next.Ack()
	}
	s.Settled()
}
