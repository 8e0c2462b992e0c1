package redisdelay_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestDuplicates(t *testing.T) {
	t.Parallel()
	uuidsWaiting := func(s *fixture.Scene) []string {
		messages := s.Subscribe()
		require.NoError(s.T, fixture.ErrOf(s.Publisher().Reschedule(s.T.Context(), s.Topic, "k", delay.For(0))))
		msg := s.Next(messages)
		msg.Ack()
		s.Settled()
		return []string{msg.UUID}
	}
	tests := map[redisdelay.DuplicatePolicy]struct {
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

// TestAnIgnoredDuplicateIsReported by Publish and PublishAsync, within a call, a batch and a topic.
func TestAnIgnoredDuplicateIsReported(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 3} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			var mu sync.Mutex
			var ignored []string // guarded by mu; keys
			messages := 0        // guarded by mu
			s := fixture.New(t)
			p := s.Publisher(fixture.Partitions(partitions), func(c *redisdelay.PublisherConfig) {
				c.OnDuplicate = redisdelay.IgnoreDuplicate
				c.Observer.Published = func(e observe.Published) {
					mu.Lock()
					defer mu.Unlock()
					assert.NoError(t, e.Err)
					ignored, messages = append(ignored, e.Ignored...), messages+e.Messages
				}
			})
			require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "a", time.Hour), fixture.Keyed("b", "b", time.Hour)))
			require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a again", "a", time.Hour), message.NewMessage("x", nil), fixture.Keyed("b again", "b", 0)))
			require.NoError(t, p.Publish(s.Topic, fixture.Keyed("c", "c", time.Hour), fixture.Keyed("c again", "c", time.Hour)))
			for n := range 4 {
				p.PublishAsync(s.Topic, fixture.Keyed(fmt.Sprint("d", n), "d", time.Hour))
			}
			require.NoError(t, p.Flush(t.Context()))
			mu.Lock()
			defer mu.Unlock()
			assert.ElementsMatch(t, []string{"a", "b", "c", "d", "d", "d"}, ignored)
			assert.Equal(t, 11, messages)
		})
	}
}

func TestAMessageMaySetItsOwnDuplicatePolicy(t *testing.T) {
	t.Parallel()
	with := func(uuid, key string, policy redisdelay.DuplicatePolicy) *message.Message {
		msg := fixture.Keyed(uuid, key, time.Hour)
		redisdelay.SetOnDuplicate(msg, policy)
		return msg
	}
	s := fixture.New(t)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.DeduplicationWindow = time.Minute })
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("first", "k", time.Hour), fixture.Keyed("other", "l", time.Hour)))
	require.NoError(t, p.Publish(s.Topic, with("ignored", "k", redisdelay.IgnoreDuplicate)))
	require.ErrorIs(t, p.Publish(s.Topic, with("rejected", "k", redisdelay.RejectDuplicate)), redisdelay.ErrDuplicateMessage)

	err := p.Publish(s.Topic, with("second", "k", redisdelay.ReplaceDuplicate), with("rejected", "l", redisdelay.RejectDuplicate))
	require.ErrorIs(t, err, redisdelay.ErrDuplicateMessage)
	var partial *redisdelay.PartialPublishError
	require.ErrorAs(t, err, &partial)
	assert.Equal(t, []int{1}, partial.Missing)
	require.ErrorIs(t, p.Publish(s.Topic, with("a", "m", "drop")), redisdelay.ErrInvalidDuplicatePolicy)
	require.ErrorIs(t, p.PublishAsync(s.Topic, with("a", "m", "")).Err(), redisdelay.ErrInvalidDuplicatePolicy)

	messages := s.Subscribe()
	require.NoError(t, fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, "k", delay.For(0))))
	s.Expect(messages, "second")
	require.NoError(t, fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, "l", delay.For(0))))
	s.Expect(messages, "other")
}

func TestCancelAndRescheduleOfAnUnknownTopicWriteNothing(t *testing.T) {
	t.Parallel()
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

func inGroup(name string) func(*subConfig) {
	return func(c *subConfig) { c.ConsumerGroup = name }
}

func TestCancelAndRescheduleReturnThePreviousStatus(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	var changed []observe.Changed
	p := s.Publisher(func(c *redisdelay.PublisherConfig) {
		c.Observer.Changed = func(e observe.Changed) { changed = append(changed, e) }
	})
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "k", time.Hour)))
	first, err := p.Reschedule(t.Context(), s.Topic, "k", delay.For(2*time.Hour))
	require.NoError(t, err)
	require.NotEmpty(t, first.ID)
	assert.Equal(t, redisdelay.Status{ID: first.ID, Scheduled: true}, first)
	assert.Equal(t, "scheduled", first.String())

	one, other := s.Subscribe(inGroup("one")), s.Subscribe(inGroup("other"))
	require.NoError(t, fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, "k", delay.For(0))))
	s.Expect(one, "a")
	msg := s.Next(other)
	acked := func() bool { return s.Client.HGet(t.Context(), s.Key("refs"), first.ID).Val() == `["other"]` }
	require.Eventually(t, acked, fixture.Soon, time.Millisecond)
	status, err := p.Reschedule(t.Context(), s.Topic, "k", delay.For(0))
	require.ErrorIs(t, err, redisdelay.ErrMessageNotFound)
	require.NotErrorIs(t, err, redisdelay.ErrMessageDead)
	assert.Equal(t, redisdelay.Status{ID: first.ID, Groups: map[string]redisdelay.State{
		"one": redisdelay.StateDone, "other": redisdelay.StateInDelivery,
	}}, status)
	assert.Equal(t, "one: done, other: in-delivery", status.String())

	require.NoError(t, fixture.Delivery(t, msg).Defer(delay.For(time.Hour)))
	msg.Nack()
	waits := func() bool { return s.Client.ZCard(t.Context(), s.Key("queue:other")).Val() == 1 }
	require.Eventually(t, waits, fixture.Soon, time.Millisecond)
	status, err = p.Cancel(t.Context(), s.Topic, "k")
	require.NoError(t, err)
	assert.Equal(t, []string{"one"}, status.In(redisdelay.StateDone))
	assert.Equal(t, []string{"other"}, status.In(redisdelay.StateQueued))
	assert.Empty(t, status.In(redisdelay.StateDead))
	s.Settled()
	status, err = p.Cancel(t.Context(), s.Topic, "k")
	require.ErrorIs(t, err, redisdelay.ErrMessageNotFound)
	assert.Zero(t, status)
	assert.Equal(t, "unknown", status.String())

	require.Len(t, changed, 5)
	for i, how := range []observe.Change{observe.Rescheduled, observe.Rescheduled, observe.Rescheduled, observe.Cancelled} {
		assert.Equal(t, how, changed[i].Change)
		assert.Equal(t, first.ID, changed[i].ID)
	}
	assert.Empty(t, changed[4].ID)
}

func TestADeadMessageIsFoundByItsKeyUntilAnotherTakesIt(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe()
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "k", 0)))
	msg := s.Next(messages)
	id := fixture.Delivery(t, msg).ID
	require.NoError(t, fixture.Delivery(t, msg).Bury("bad"))
	msg.Nack()
	dead.Messages(s, 1)
	before := redisdelay.Status{ID: id, Groups: map[string]redisdelay.State{"default": redisdelay.StateDead}}
	for _, call := range []func() (redisdelay.Status, error){
		func() (redisdelay.Status, error) { return p.Cancel(t.Context(), s.Topic, "k") },
		func() (redisdelay.Status, error) { return p.Reschedule(t.Context(), s.Topic, "k", delay.For(0)) },
	} {
		status, err := call()
		require.ErrorIs(t, err, redisdelay.ErrMessageDead)
		require.ErrorIs(t, err, redisdelay.ErrMessageNotFound)
		assert.ErrorContains(t, err, "it is a dead message")
		assert.Equal(t, before, status)
	}
	dead.Messages(s, 1)

	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("b", "k", time.Hour)), "the key is free")
	status, err := p.Cancel(t.Context(), s.Topic, "k")
	require.NoError(t, err)
	assert.NotEqual(t, id, status.ID)
	require.ErrorIs(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")), redisdelay.ErrMessageNotFound)
	dead.Messages(s, 1)
}

func TestAStepKeyIsTheSameInEachRedelivery(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe()
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Keyed("a", "key", 0)))
	var keys []string
	for range 2 {
		msg := s.Next(messages)
		d := fixture.Delivery(t, msg)
		assert.Equal(t, d.ID[:26]+"/invoice", d.StepKey("invoice"))
		assert.NotEqual(t, d.StepKey("invoice"), d.StepKey("mail"))
		keys = append(keys, d.StepKey("invoice"))
		msg.Nack()
	}
	assert.Equal(t, keys[0], keys[1])
	s.Expect(messages, "a")
	assert.Empty(t, redisdelay.Delivery{}.StepKey("s"))
	assert.Equal(t, "other/s", redisdelay.Delivery{ID: "other"}.StepKey("s"), "another program's id may have any form")
}
