package redisdelay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestDuplicates(t *testing.T) {
	uuidsWaiting := func(s *fixture.Scene) []string {
		messages := s.Subscribe()
		require.NoError(s.T, fixture.ErrOf(s.Publisher().Reschedule(s.T.Context(), s.Topic, "k", delay.For(0))))
		msg := s.Next(messages)
		msg.Ack()
		s.Settled()
		return []string{msg.UUID}
	}
	tests := map[redisdelay.OnDuplicate]struct {
		err  error
		left string
	}{
		redisdelay.RejectDuplicate:  {redisdelay.ErrDuplicateMessage, "first"},
		redisdelay.IgnoreDuplicate:  {nil, "first"},
		redisdelay.ReplaceDuplicate: {nil, "second"},
	}
	for policy, want := range tests {
		t.Run(string(policy), func(t *testing.T) {
			s := fixture.New(t)
			p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.OnDuplicate = policy })
			require.NoError(t, p.Publish(s.Topic, fixture.Keyed("first", "k", time.Hour)))
			require.ErrorIs(t, p.Publish(s.Topic, fixture.Keyed("second", "k", time.Hour)), want.err)
			assert.Equal(t, []string{want.left}, uuidsWaiting(s))
			require.NoError(t, p.Publish(s.Topic, fixture.Keyed("third", "k", 0)), "the key is free again")
		})
	}
}

func TestCancelAndReschedule(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe()
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "a", time.Hour), fixture.Keyed("b", "b", time.Hour)))
	require.NoError(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "a")))
	require.ErrorIs(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "a")), redisdelay.ErrMessageNotFound)
	require.NoError(t, fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, "b", delay.For(200*time.Millisecond))))
	s.Expect(messages, "b")
	s.Settled()
	require.ErrorIs(t, fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, "b", delay.For(0))), redisdelay.ErrMessageNotFound)
	require.ErrorIs(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "")), redisdelay.ErrInvalidKey)
}

func TestAMessageCancelledWhileHandledDoesNotComeBack(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.LeaseDuration = 300 * time.Millisecond })
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "k", 0)))
	msg := s.Next(messages)
	require.NoError(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")))
	s.Ended(msg.Context(), redisdelay.ErrLeaseLost)
	msg.Nack()
	s.Idle(messages)
	s.Settled()
}

func TestAHandlerMayTakeOverTheKeyOfItsMessage(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.OnDuplicate = redisdelay.ReplaceDuplicate })
	messages := s.Subscribe()
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("first", "k", 0)))
	msg := s.Next(messages)
	next := fixture.Keyed("next", "k", time.Hour)
	next.SetContext(msg.Context())
	require.NoError(t, p.Publish(s.Topic, next))
	msg.Ack()
	require.NoError(t, fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, "k", delay.For(0))))
	s.Expect(messages, "next")
	s.Settled()
}

// TestAKeyThatIsHeldThroughoutIsAlwaysFound replaces the key's message all the time.
func TestAKeyThatIsHeldThroughoutIsAlwaysFound(t *testing.T) {
	s := fixture.New(t)
	replacing := s.Publisher(fixture.Partitions(4), func(c *redisdelay.PublisherConfig) { c.OnDuplicate = redisdelay.ReplaceDuplicate })
	publish := func() error { return replacing.Publish(s.Topic, fixture.Keyed("a", "k", time.Hour)) }
	require.NoError(t, publish())
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := publish(); err != nil {
				stopped <- err
				return
			}
		}
	}()
	p := s.Publisher()
	for n := range 300 {
		require.NoError(t, fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, "k", delay.For(2*time.Hour))), "call %d", n)
	}
	close(stop)
	require.NoError(t, <-stopped)
	require.NoError(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")))
	require.ErrorIs(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")), redisdelay.ErrMessageNotFound)
}

// TestAKeyIsFoundInAnyPartition raises the number of partitions, after which the next
// message with a key may go to another partition.
func TestAKeyIsFoundInAnyPartition(t *testing.T) {
	s := fixture.New(t)
	for _, p := range []*redisdelay.Publisher{s.Publisher(), s.Publisher(fixture.Partitions(8))} {
		for n := range 10 {
			_ = p.Publish(s.Topic, fixture.Keyed("a", fmt.Sprint("key", n), time.Hour)) // a duplicate, unless it moves
		}
	}
	p := s.Publisher()
	for n := range 10 {
		key := fmt.Sprint("key", n)
		require.NoError(t, fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, key, delay.For(2*time.Hour))))
		require.NoError(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, key)))
		require.ErrorIs(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, key)), redisdelay.ErrMessageNotFound)
	}
	keys, err := s.Keys(t.Context())
	require.NoError(t, err)
	for _, key := range keys {
		require.False(t, strings.HasSuffix(key, ":messages"), "%s is left", key)
	}
}

func TestCancelAndRescheduleOnAMistypedTopicLeaveNoTrace(t *testing.T) {
	s := fixture.NewOn(t, redistest.New(t))
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Partitions = 12 })
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "k", time.Hour)))
	keyspace := func() map[string]string {
		dump := map[string]string{}
		for _, key := range s.Client.Keys(t.Context(), "*").Val() {
			dump[key] = s.Client.Dump(t.Context(), key).Val()
		}
		return dump
	}
	before := keyspace()
	require.NotEmpty(t, before)
	mistyped := s.Topic + "s"
	require.ErrorIs(t, fixture.ErrOf(p.Cancel(t.Context(), mistyped, "k")), redisdelay.ErrMessageNotFound)
	require.ErrorIs(t, fixture.ErrOf(p.Reschedule(t.Context(), mistyped, "k", delay.For(time.Minute))), redisdelay.ErrMessageNotFound)
	require.Equal(t, before, keyspace())
}
