package redisdelay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestTheTokenAlwaysGrowsEvenAfterARequeue(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.MaxDeliveries = 2 })
	s.Publish("a")
	var tokens []int64
	var attempts []int
	for range 2 {
		for range 2 {
			msg := s.Next(messages)
			d := fixture.Delivery(t, msg)
			tokens, attempts = append(tokens, d.Token), append(attempts, d.Attempt)
			msg.Nack()
		}
		require.Equal(t, 1, dead.Requeue(s, dead.Messages(s, 1)[0].ID))
	}
	s.Expect(messages, "a")
	assert.Equal(t, []int64{1, 2, 3, 4}, tokens)
	assert.Equal(t, []int{1, 2, 1, 2}, attempts)
}

func TestHandlersSeeTheirDelivery(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.MaxDeliveries = 3 })
	const by = 200 * time.Millisecond
	within := func(at, from, to time.Time) { // Redis has whole milliseconds
		t.Helper()
		assert.WithinRange(t, at, from.Add(-time.Millisecond), to.Add(time.Millisecond))
	}
	start := s.Now()
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Delayed("a", by)))
	published := s.Now()

	msg := s.Next(messages)
	claimed := s.Now()
	first, ok := redisdelay.DeliveryFromContext(msg.Context())
	require.True(t, ok)
	assert.Equal(t, s.Topic, first.Topic)
	assert.Equal(t, redisdelay.DefaultConsumerGroup, first.Group)
	assert.Len(t, first.ID, 26)
	assert.Equal(t, 1, first.Attempt)
	assert.Equal(t, 3, first.MaxDeliveries)
	assert.Positive(t, first.Token)
	assert.Empty(t, first.LastError)
	within(first.DueAt, start.Add(by), published.Add(by))
	within(first.LeasedUntil, start.Add(by+30*time.Second), claimed.Add(30*time.Second))
	first.RecordError(errors.New("out of order"))
	msg.Nack()

	msg = s.Next(messages)
	second, ok := redisdelay.DeliveryFromContext(msg.Context())
	require.True(t, ok)
	assert.Equal(t, first.ID, second.ID)
	assert.Equal(t, 2, second.Attempt)
	assert.Greater(t, second.Token, first.Token)
	assert.Equal(t, "out of order", second.LastError)
	assert.GreaterOrEqual(t, second.DueAt.Sub(first.DueAt), redisdelay.MinRedeliveryDelay)
	msg.Ack()

	_, ok = redisdelay.DeliveryFromContext(context.Background())
	assert.False(t, ok)
}

func TestAMessageContextCarriesValuesAndEndsWithTheSettlement(t *testing.T) {
	t.Parallel()
	type key struct{}
	s := fixture.New(t)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
	defer cancel()
	messages, err := s.Subscriber().Subscribe(ctx, s.Topic)
	require.NoError(t, err)
	s.Publish("acked", "handled while closing")

	msg := s.Next(messages)
	assert.Equal(t, "value", msg.Context().Value(key{}))
	require.NoError(t, msg.Context().Err())
	msg.Ack()
	s.Ended(msg.Context(), context.Canceled)

	msg = s.Next(messages)
	cancel()
	select {
	case <-msg.Context().Done():
		require.Fail(t, "the end of the subscription must not cancel a handler at once")
	case <-time.After(200 * time.Millisecond):
	}
	msg.Ack()
	s.Closed(messages)
	s.Settled()
}

// oneDelivery buries what fails once, and would redeliver it after an hour.
func oneDelivery(c *subConfig) {
	c.MaxDeliveries, c.NackDelay = 1, func(int) time.Duration { return time.Hour }
}

func TestADeferralDoesNotCountAsADelivery(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	retried := make(retries, 10)
	messages := s.Subscribe(oneDelivery, retried.observe)
	s.Publish("a")
	for n := range int64(4) {
		msg := s.Next(messages)
		d := fixture.Delivery(t, msg)
		assert.Equal(t, 1, d.Attempt)
		assert.Equal(t, n+1, d.Token)
		start := s.Now()
		require.NoError(t, d.Defer(delay.For(200*time.Millisecond)))
		msg.Nack()
		assert.LessOrEqual(t, retried.next(t), 200*time.Millisecond)
		next := s.Next(messages)
		assert.GreaterOrEqual(t, fixture.Delivery(t, next).DueAt.Sub(start), 200*time.Millisecond)
		messages = prepend(next, messages)
	}
	s.Expect(messages, "a")
	s.Settled()
}

func TestABuriedMessageIsADeadMessageWithItsReason(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", redisdelay.MaxReasonBytes)
	for reason, want := range map[string]string{
		"no such order": "no such order",
		" \n":           "buried by its handler",
		long:            long[:redisdelay.MaxReasonBytes],
		"x" + long:      ("x" + long)[:redisdelay.MaxReasonBytes-1], // without half a character
		"\xff!\n":       "?!",
	} {
		s := fixture.New(t)
		messages := s.Subscribe()
		s.Publish("a", "b")
		msg := s.Next(messages)
		msg.Metadata.Set("seen by", "us")
		require.NoError(t, fixture.Delivery(t, msg).Bury(reason))
		msg.Nack()
		s.Expect(messages, "b")
		entry := dead.Messages(s, 1)[0]
		assert.Equal(t, want, entry.Reason)
		assert.Equal(t, message.Metadata{"seen by": "us"}, entry.Content.Message.Metadata)
		require.Eventually(t, func() bool { return s.Log.Count("A message was dead-lettered") == 1 }, fixture.Soon, 5*time.Millisecond)
	}
}

func TestTheLastDecisionWinsAndAnAckIgnoresIt(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe()
	s.Publish("acked", "buried", "deferred")
	msg := s.Next(messages)
	require.NoError(t, fixture.Delivery(t, msg).Bury("no"))
	msg.Ack()

	msg = s.Next(messages)
	require.NoError(t, fixture.Delivery(t, msg).Defer(delay.For(time.Millisecond)))
	require.NoError(t, fixture.Delivery(t, msg).Bury("yes"))
	msg.Nack()
	require.ErrorContains(t, fixture.Delivery(t, msg).Bury("too late"), "the message is already acked or nacked")
	require.ErrorContains(t, fixture.Delivery(t, msg).Defer(delay.For(0)), "the message is already acked or nacked")

	msg = s.Next(messages)
	d := fixture.Delivery(t, msg)
	require.NoError(t, d.Bury("no"))
	assert.Equal(t, []bool{true, false}, []bool{d.Buried(), d.Deferred()})
	require.NoError(t, d.Defer(delay.For(time.Millisecond)))
	assert.Equal(t, []bool{false, true}, []bool{d.Buried(), d.Deferred()})
	var wrong *redisdelay.DelayError
	err := d.Defer(delay.Until(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)))
	require.ErrorAs(t, err, &wrong, "a delay that cannot be used decides nothing")
	assert.Contains(t, err.Error(), fmt.Sprintf("redisdelay: defer %q: metadata", d.ID))
	msg.Nack()
	s.Expect(messages, "deferred")
	assert.Equal(t, "yes", dead.Messages(s, 1)[0].Reason)
}

// TestADecisionIsSafeForConcurrentUse decides while another goroutine nacks. One decision takes effect, once.
func TestADecisionIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	settled := make(chan observe.Settled, 10)
	messages := s.Subscribe(func(c *subConfig) { c.Observer.Settled = func(e observe.Settled) { settled <- e } })
	buried := 0
	for n := range 5 {
		s.Publish(fmt.Sprint(n))
		msg := s.Next(messages)
		d := fixture.Delivery(t, msg)
		var deciding sync.WaitGroup
		decided := make(chan struct{}, 4)
		for range cap(decided) {
			deciding.Go(func() { decideUntilSettled(t, d, decided) })
		}
		for range cap(decided) {
			<-decided
		}
		msg.Nack()
		deciding.Wait()
		require.False(t, t.Failed())
		switch e := <-settled; e.Settlement {
		case observe.Deferred:
			s.Expect(messages, msg.UUID)
			assert.Equal(t, observe.Acked, (<-settled).Settlement)
		case observe.BuriedByHandler:
			buried++
		default:
			assert.Fail(t, "no decision has taken effect", "%+v", e)
		}
	}
	dead.Messages(s, buried)
	s.Idle(messages)
	assert.Empty(t, settled)
}

// decideUntilSettled tells of its first decisions. It ends when the delivery takes no more of them.
func decideUntilSettled(t *testing.T, d redisdelay.Delivery, decided chan<- struct{}) {
	t.Helper()
	var err error
	for n, deadline := 0, time.Now().Add(fixture.Soon); err == nil; n++ {
		if err = d.Bury("no"); err == nil {
			err = d.Defer(delay.For(time.Millisecond))
		}
		if n == 0 {
			assert.NoError(t, err)
			decided <- struct{}{}
		}
		if !assert.True(t, time.Now().Before(deadline), "decisions are taken after the nack") {
			return
		}
	}
	assert.ErrorContains(t, err, "already acked or nacked")
}

func TestDecisionsOfAZeroDeliveryAreErrors(t *testing.T) {
	var d redisdelay.Delivery
	require.EqualError(t, d.Defer(delay.For(time.Hour)), `redisdelay: defer "": the Delivery does not come from DeliveryFromContext`)
	require.EqualError(t, d.Bury("no"), `redisdelay: bury "": the Delivery does not come from DeliveryFromContext`)
	d.RecordError(assert.AnError)
	fails := func(*message.Message) ([]*message.Message, error) { return nil, assert.AnError }
	_, err := redisdelay.RecordErrors(fails)(message.NewMessage("of another Pub/Sub", nil))
	require.ErrorIs(t, err, assert.AnError)
}

func TestADecisionKeepsOnlyMetadataThatHaveChanged(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe()
	published := message.NewMessage("a", []byte("payload"))
	published.Metadata.Set("x", "1")
	delay.Message(published, delay.For(10*time.Millisecond))
	require.NoError(t, s.Publisher().Publish(s.Topic, published))
	changed := func() int64 { return s.Client.HLen(t.Context(), s.Key("nack_metadata:default")).Val() }
	deferred := func(msg *message.Message) *message.Message {
		require.NoError(t, fixture.Delivery(t, msg).Defer(delay.For(time.Millisecond)))
		copy(msg.Payload, "SECRET!")
		msg.Nack()
		return s.Next(messages)
	}
	msg := deferred(s.Next(messages))
	assert.Zero(t, changed())
	msg.Metadata.Set("step", "2")
	delay.Message(msg, delay.For(time.Hour)) // which the decision overrules
	msg = deferred(msg)
	assert.Equal(t, int64(1), changed())
	assert.Equal(t, "2", msg.Metadata.Get("step"))
	assert.Equal(t, "1", msg.Metadata.Get("x"))
	assert.Equal(t, "+ 10ms", msg.Metadata.Get(delay.DelayedForKey))
	msg = deferred(msg)
	assert.Equal(t, "2", msg.Metadata.Get("step"))
	msg.Metadata = nil
	msg = deferred(msg)
	assert.NotContains(t, msg.Metadata, "step")
	assert.Equal(t, "+ 10ms", msg.Metadata.Get(delay.DelayedForKey))
	assert.Equal(t, "payload", string(msg.Payload))
	msg.Ack()

	published = message.NewMessage("b", nil)
	published.Metadata.Set("x", "1")
	require.NoError(t, s.Publisher().Publish(s.Topic, published))
	msg = s.Next(messages)
	clear(msg.Metadata)
	msg = deferred(msg)
	assert.Empty(t, msg.Metadata, "no delay is left either")
	msg.Ack()
	s.Settled()
}

func TestADeferralDoesNotGrowTheDelayOfDelayOnError(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe()
	s.Publish("a")
	errLater := errors.New("later")
	outcome := assert.AnError
	failing := (&middleware.DelayOnError{
		InitialInterval: 100 * time.Millisecond, MaxInterval: time.Hour, Multiplier: 2,
	}).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		if errors.Is(outcome, errLater) {
			require.NoError(t, fixture.Delivery(t, msg).Defer(delay.For(time.Millisecond)))
		}
		return nil, outcome
	})
	for i, step := range []struct {
		err     error
		delay   string // of the next delivery, in its metadata
		attempt int
	}{
		{errLater, "", 1}, {assert.AnError, "+100ms", 2}, {errLater, "+100ms", 2}, {errLater, "+100ms", 2}, {assert.AnError, "+200ms", 3},
	} {
		msg := s.Next(messages)
		outcome = step.err
		_, err := failing(msg)
		require.ErrorIs(t, err, step.err)
		msg.Nack()
		next := s.Next(messages)
		assert.Equal(t, step.delay, next.Metadata.Get(delay.DelayedForKey), "after step %d", i)
		assert.Equal(t, step.attempt, fixture.Delivery(t, next).Attempt)
		messages = prepend(next, messages)
	}
	s.Expect(messages, "a")
	s.Settled()
}
