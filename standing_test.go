package redisdelay_test

import (
	"context"
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

func inGroup(name string) func(*subConfig) {
	return func(c *subConfig) { c.ConsumerGroup = name }
}

func TestCancelAndRescheduleTellWhereTheMessageStood(t *testing.T) {
	s := fixture.New(t)
	var changed []observe.Changed
	p := s.Publisher(func(c *redisdelay.PublisherConfig) {
		c.Observer.Changed = func(e observe.Changed) { changed = append(changed, e) }
	})
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "k", time.Hour)))
	first, err := p.Reschedule(t.Context(), s.Topic, "k", delay.For(2*time.Hour))
	require.NoError(t, err)
	require.NotEmpty(t, first.ID)
	assert.Equal(t, redisdelay.Standing{ID: first.ID, Scheduled: true}, first)
	assert.Equal(t, "scheduled", first.String())

	one, other := s.Subscribe(inGroup("one")), s.Subscribe(inGroup("other"))
	require.NoError(t, fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, "k", delay.For(0))))
	s.Expect(one, "a")
	msg := s.Next(other)
	acked := func() bool { return s.Client.HGet(t.Context(), s.Key("refs"), first.ID).Val() == `["other"]` }
	require.Eventually(t, acked, fixture.Soon, time.Millisecond)
	standing, err := p.Reschedule(t.Context(), s.Topic, "k", delay.For(0))
	require.ErrorIs(t, err, redisdelay.ErrMessageNotFound)
	require.NotErrorIs(t, err, redisdelay.ErrMessageDead)
	assert.Equal(t, redisdelay.Standing{ID: first.ID, Groups: map[string]redisdelay.State{
		"one": redisdelay.StateDone, "other": redisdelay.StateInDelivery,
	}}, standing)
	assert.Equal(t, "one: done, other: in-delivery", standing.String())

	require.NoError(t, fixture.Delivery(t, msg).Defer(delay.For(time.Hour)))
	msg.Nack()
	waits := func() bool { return s.Client.ZCard(t.Context(), s.Key("queue:other")).Val() == 1 }
	require.Eventually(t, waits, fixture.Soon, time.Millisecond)
	standing, err = p.Cancel(t.Context(), s.Topic, "k")
	require.NoError(t, err)
	assert.Equal(t, []string{"one"}, standing.In(redisdelay.StateDone))
	assert.Equal(t, []string{"other"}, standing.In(redisdelay.StateWaiting))
	assert.Empty(t, standing.In(redisdelay.StateDead))
	s.Settled()
	standing, err = p.Cancel(t.Context(), s.Topic, "k")
	require.ErrorIs(t, err, redisdelay.ErrMessageNotFound)
	assert.Zero(t, standing)
	assert.Equal(t, "unknown", standing.String())

	require.Len(t, changed, 5)
	for i, how := range []observe.Change{observe.Rescheduled, observe.Rescheduled, observe.Rescheduled, observe.Cancelled} {
		assert.Equal(t, how, changed[i].How)
		assert.Equal(t, first.ID, changed[i].ID)
	}
	assert.Empty(t, changed[4].ID)
}

func TestADeadLetterIsFoundByItsKeyUntilAnotherTakesIt(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe()
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "k", 0)))
	msg := s.Next(messages)
	id := fixture.Delivery(t, msg).ID
	fixture.Delivery(t, msg).Bury("bad")
	msg.Nack()
	dead.Letters(s, 1)
	before := redisdelay.Standing{ID: id, Groups: map[string]redisdelay.State{"default": redisdelay.StateDead}}
	for _, call := range []func() (redisdelay.Standing, error){
		func() (redisdelay.Standing, error) { return p.Cancel(t.Context(), s.Topic, "k") },
		func() (redisdelay.Standing, error) { return p.Reschedule(t.Context(), s.Topic, "k", delay.For(0)) },
	} {
		standing, err := call()
		require.ErrorIs(t, err, redisdelay.ErrMessageDead)
		require.ErrorIs(t, err, redisdelay.ErrMessageNotFound)
		assert.ErrorContains(t, err, "it is a dead letter")
		assert.Equal(t, before, standing)
	}
	dead.Letters(s, 1)

	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("b", "k", time.Hour)), "the key is free")
	standing, err := p.Cancel(t.Context(), s.Topic, "k")
	require.NoError(t, err)
	assert.NotEqual(t, id, standing.ID)
	require.ErrorIs(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")), redisdelay.ErrMessageNotFound)
	dead.Letters(s, 1)
}

// TestADeadLetterOfOneGroupIsTakenBackFromTheOther and stays a dead letter, whole.
func TestADeadLetterOfOneGroupIsTakenBackFromTheOther(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe()
	require.NoError(t, s.Subscriber(inGroup("other")).SubscribeInitialize(s.Topic))
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "k", 0)))
	msg := s.Next(messages)
	fixture.Delivery(t, msg).Bury("bad")
	msg.Nack()
	dead.Letters(s, 1)
	standing, err := p.Cancel(t.Context(), s.Topic, "k")
	require.NoError(t, err)
	assert.Equal(t, "default: dead, other: waiting", standing.String())
	s.Idle(s.Subscribe(inGroup("other")))
	letter := dead.Letters(s, 1)[0]
	assert.Equal(t, "a", letter.Content.Message.UUID)

	assert.Equal(t, 1, dead.Requeue(s, letter.ID))
	s.Expect(messages, "a")
	s.Settled()
}

// closer closes orders, with whatever can cancel and reschedule.
type closer struct {
	redisdelay.Canceler
	redisdelay.Rescheduler
}

// counting is a decorator.
type counting struct {
	redisdelay.Canceler
	calls int
}

func (c *counting) Cancel(ctx context.Context, topic, key string) (redisdelay.Standing, error) {
	c.calls++
	return c.Canceler.Cancel(ctx, topic, key)
}

func TestAHandlersNeedsCanBeDecorated(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	c := &counting{Canceler: p}
	shop := closer{c, p}
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "k", time.Hour), message.NewMessage("b", nil)))
	require.NoError(t, fixture.ErrOf(shop.Reschedule(t.Context(), s.Topic, "k", delay.For(time.Minute))))
	require.NoError(t, fixture.ErrOf(shop.Cancel(t.Context(), s.Topic, "k")))
	assert.Equal(t, 1, c.calls)
	s.Expect(s.Subscribe(), "b")
}
