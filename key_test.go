package redisdelay_test

import (
	"context"
	"fmt"
	"strings"
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

func TestAMessageMayHaveADuplicatePolicyOfItsOwn(t *testing.T) {
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

func TestCancelAndReschedule(t *testing.T) {
	t.Parallel()
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

func TestAMessageCanceledWhileHandledDoesNotComeBack(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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

func TestCancelAndRescheduleTellWhereTheMessageStood(t *testing.T) {
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
	for i, how := range []observe.Change{observe.Rescheduled, observe.Rescheduled, observe.Rescheduled, observe.Canceled} {
		assert.Equal(t, how, changed[i].How)
		assert.Equal(t, first.ID, changed[i].ID)
	}
	assert.Empty(t, changed[4].ID)
}

func TestADeadLetterIsFoundByItsKeyUntilAnotherTakesIt(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe()
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "k", 0)))
	msg := s.Next(messages)
	id := fixture.Delivery(t, msg).ID
	require.NoError(t, fixture.Delivery(t, msg).Bury("bad"))
	msg.Nack()
	dead.Letters(s, 1)
	before := redisdelay.Status{ID: id, Groups: map[string]redisdelay.State{"default": redisdelay.StateDead}}
	for _, call := range []func() (redisdelay.Status, error){
		func() (redisdelay.Status, error) { return p.Cancel(t.Context(), s.Topic, "k") },
		func() (redisdelay.Status, error) { return p.Reschedule(t.Context(), s.Topic, "k", delay.For(0)) },
	} {
		status, err := call()
		require.ErrorIs(t, err, redisdelay.ErrMessageDead)
		require.ErrorIs(t, err, redisdelay.ErrMessageNotFound)
		assert.ErrorContains(t, err, "it is a dead letter")
		assert.Equal(t, before, status)
	}
	dead.Letters(s, 1)

	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("b", "k", time.Hour)), "the key is free")
	status, err := p.Cancel(t.Context(), s.Topic, "k")
	require.NoError(t, err)
	assert.NotEqual(t, id, status.ID)
	require.ErrorIs(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")), redisdelay.ErrMessageNotFound)
	dead.Letters(s, 1)
}

// TestADeadLetterOfOneGroupIsTakenBackFromTheOther and stays a dead letter, whole.
func TestADeadLetterOfOneGroupIsTakenBackFromTheOther(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe()
	require.NoError(t, s.Subscriber(inGroup("other")).SubscribeInitialize(s.Topic))
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "k", 0)))
	msg := s.Next(messages)
	require.NoError(t, fixture.Delivery(t, msg).Bury("bad"))
	msg.Nack()
	dead.Letters(s, 1)
	status, err := p.Cancel(t.Context(), s.Topic, "k")
	require.NoError(t, err)
	assert.Equal(t, "default: dead, other: queued", status.String())
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

func (c *counting) Cancel(ctx context.Context, topic, key string) (redisdelay.Status, error) {
	c.calls++
	return c.Canceler.Cancel(ctx, topic, key)
}

func TestAHandlersNeedsCanBeDecorated(t *testing.T) {
	t.Parallel()
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

// window is a change of a publisher's config.
func window(length time.Duration, policy redisdelay.DuplicatePolicy) func(*redisdelay.PublisherConfig) {
	return func(c *redisdelay.PublisherConfig) { c.DeduplicationWindow, c.OnDuplicate = length, policy }
}

func TestAKeyStaysInUseForTheWindow(t *testing.T) {
	t.Parallel()
	for policy, refusal := range map[redisdelay.DuplicatePolicy]error{
		redisdelay.RejectDuplicate: redisdelay.ErrDuplicateMessage,
		redisdelay.IgnoreDuplicate: nil,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			s := fixture.New(t)
			const length = 5 * time.Second // more than a busy machine needs for three calls
			p, messages := s.Publisher(window(length, policy)), s.Subscribe()
			start := time.Now()
			require.NoError(t, p.Publish(s.Topic, fixture.Keyed("first", "k", 0)))
			s.Expect(messages, "first")
			require.ErrorIs(t, p.Publish(s.Topic, fixture.Keyed("again", "k", 0)), refusal)
			without := s.Publisher(window(0, policy))
			require.ErrorIs(t, without.Publish(s.Topic, fixture.Keyed("again", "k", 0)), refusal, "it binds all publishers")

			var delivered *message.Message
			require.Eventually(t, func() bool {
				_ = p.Publish(s.Topic, fixture.Keyed("next", "k", 0))
				select {
				case delivered = <-messages:
					return true
				case <-time.After(20 * time.Millisecond):
					return false
				}
			}, fixture.Soon, time.Millisecond)
			assert.Equal(t, "next", delivered.UUID)
			assert.GreaterOrEqual(t, time.Since(start), length)
			delivered.Ack()
		})
	}
}

func TestCancelFreesTheKeyWithinTheWindow(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	p := s.Publisher(window(time.Hour, redisdelay.RejectDuplicate))
	messages := s.Subscribe()
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("first", "k", time.Hour)))
	require.NoError(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")))
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("second", "k", 0)))
	s.Expect(messages, "second")
	require.Eventually(t, func() bool { // its ack is in Redis
		return s.Client.Exists(t.Context(), s.Key("messages")).Val() == 0
	}, fixture.Soon, time.Millisecond)
	require.ErrorIs(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")), redisdelay.ErrMessageNotFound)
	require.ErrorIs(t, p.Publish(s.Topic, fixture.Keyed("third", "k", 0)), redisdelay.ErrDuplicateMessage)
	replacing := s.Publisher(window(0, redisdelay.ReplaceDuplicate))
	require.NoError(t, replacing.Publish(s.Topic, fixture.Keyed("replacement", "k", 0)))
	s.Expect(messages, "replacement")
}

// TestAnImportThatRunsTwiceStoresEachMessageOnce in several partitions, although its first
// messages have been handled when it starts anew.
func TestAnImportThatRunsTwiceStoresEachMessageOnce(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.MaxInFlight = 100 })
	const rows = 60
	for run := range 2 {
		p := s.Publisher(fixture.Partitions(4), window(time.Hour, redisdelay.IgnoreDuplicate))
		for row := 0; row < rows; row += 10 {
			var call []*message.Message
			for n := range 10 {
				call = append(call, fixture.Keyed(fmt.Sprint("row ", row+n), fmt.Sprint("key ", row+n), 0))
			}
			require.NoError(t, p.Publish(s.Topic, call...))
		}
		if run > 0 {
			s.Idle(messages)
			return
		}
		seen := map[string]bool{}
		for range rows {
			msg := s.Next(messages)
			seen[msg.UUID] = true
			msg.Ack()
		}
		require.Len(t, seen, rows)
	}
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
	assert.Equal(t, "other/s", redisdelay.Delivery{ID: "other"}.StepKey("s"), "another program's id may have any form")
}

func TestAStepThatMakesNoValidKeyIsRefusedByPublish(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe()
	s.Publish("a")
	msg := s.Next(messages)
	d := fixture.Delivery(t, msg)
	longest := strings.Repeat("x", redisdelay.MaxKeyBytes-27)
	p := s.Publisher(window(time.Minute, redisdelay.IgnoreDuplicate))
	other := s.Beside("/next").Topic
	require.NoError(t, p.Publish(other, fixture.Keyed("b", d.StepKey(longest), 0)))
	require.ErrorIs(t, p.Publish(other, fixture.Keyed("b", d.StepKey(longest+"x"), 0)), redisdelay.ErrInvalidKey)
	require.ErrorIs(t, p.Publish(other, fixture.Keyed("b", redisdelay.Delivery{}.StepKey("step"), 0)), redisdelay.ErrInvalidKey)
	msg.Ack()
}
