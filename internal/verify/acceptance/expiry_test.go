package acceptance

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// short makes a subscription one that counts as alive for 400 ms.
func short(c *subConfig) {
	c.LeaseDuration, c.PollInterval = 300*time.Millisecond, 200*time.Millisecond
}

// switchable is the connection of a process to Redis: it may be cut for good, or stand
// still, as when the process is stopped.
type switchable struct {
	redistest.Hook
	dead  atomic.Bool
	still atomic.Pointer[chan struct{}]
}

var errCut = errors.New("the process is dead")

// client is a client of its own with this connection.
func (l *switchable) client(s *fixture.Scene) redis.UniversalClient {
	s.T.Helper()
	single, ok := s.Client.(*redis.Client)
	require.True(s.T, ok)
	client := redis.NewClient(single.Options())
	client.AddHook(l)
	s.T.Cleanup(func() { _ = client.Close() })
	return client
}

func (l *switchable) cut() { l.dead.Store(true) }

// stop makes all calls wait until the returned function is called.
func (l *switchable) stop() (resume func()) {
	wait := make(chan struct{})
	l.still.Store(&wait)
	return func() {
		l.still.Store(nil)
		close(wait)
	}
}

func (l *switchable) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if wait := l.still.Load(); wait != nil {
			<-*wait
		}
		if l.dead.Load() {
			cmd.SetErr(errCut)
			return errCut
		}
		return next(ctx, cmd)
	}
}

// TestAGroupThatIsBusyInAnotherPartitionIsAlive: its only worker has a message of another
// partition for longer than a consumer counts as alive, and so claims nothing in the first.
func TestAGroupThatIsBusyInAnotherPartitionIsAlive(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	c := newControl(t, s)
	p := s.Publisher(fixture.Partitions(2))
	// It counts as alive for 3 s: longer than a machine stands still, and than the second in which claims do not tell it again.
	messages := s.Subscribe(func(c *subConfig) { c.LeaseDuration, c.PollInterval = 3*time.Second, 1500*time.Millisecond })
	var busy *message.Message
	for busy == nil { // in partition 1, whose tag has a salt
		require.NoError(t, p.Publish(s.Topic, message.NewMessage("", nil)))
		msg := s.Next(messages)
		if s.Client.ZCard(t.Context(), s.Key("unack:default")).Val() == 0 {
			busy = msg
			break
		}
		msg.Ack()
		require.NoError(t, c.Drain(t.Context(), s.Topic, "default", nil))
	}
	for start := time.Now(); time.Since(start) < 5*time.Second; {
		_, err := c.RetireGroup(t.Context(), s.Topic, "default", redisdelay.RetireOptions{})
		require.ErrorIs(t, err, redisdelay.ErrGroupAlive, "after %s", time.Since(start))
		<-time.After(20 * time.Millisecond)
	}
	require.True(t, busy.Ack())
}

// TestAGroupLastsAsLongAsItIsAlive, even if that is much longer than its GroupExpiry, and
// though its only worker is busy.
func TestAGroupLastsAsLongAsItIsAlive(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	steady := s.Subscribe(group("steady"), short)
	messages := s.Subscribe(short, func(c *subConfig) {
		c.ConsumerGroup, c.GroupExpiry, c.LeaseDuration = "g", time.Second, 6*time.Second
	})
	s.Publish("a", "b")
	first := s.Next(messages)
	s.Expect(steady, "a", "b")
	<-time.After(18 * time.Second) // the lease, GroupExpiry, the 9 s from when this is noticed, and a look
	require.True(t, first.Ack())
	s.Expect(messages, "b")
	assert.Zero(t, s.Log.Count("Ended"), "%v", s.Log.Lines())
	s.T.Log(s.Log.Lines())
}

// TestASubscriberThatWasStoppedBeginsItsGroupAnew and says so once, without an error but that of claims while it was stopped.
func TestASubscriberThatWasStoppedBeginsItsGroupAnew(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	p := s.Publisher(fixture.Partitions(2))
	require.NoError(t, p.Publish(s.Topic, message.NewMessage("first", nil)))
	steady := s.Subscribe(group("steady"), short)
	s.Expect(steady, "first")
	link, log := &switchable{}, &fixture.Log{}
	sub, err := redisdelay.NewSubscriber(subConfig{
		Client: link.client(s), ConsumerGroup: "g", GroupExpiry: time.Second, LeaseDuration: 300 * time.Millisecond, PollInterval: 200 * time.Millisecond,
	}, log)
	require.NoError(t, err)
	messages, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	resume := link.stop()
	for range 4 {
		require.NoError(t, p.Publish(s.Topic, message.NewMessage("missed", nil)))
		s.Next(steady).Ack()
	}
	require.Eventually(t, func() bool { return len(leftovers(s)) == 0 }, time.Minute, 50*time.Millisecond)
	resume()
	require.Eventually(t, func() bool { // in each partition, as soon as it claims there
		require.NoError(t, p.Publish(s.Topic, message.NewMessage("new", nil)))
		s.Next(steady).Ack()
		select {
		case msg := <-messages:
			require.Equal(t, "new", msg.UUID)
			return msg.Ack()
		case <-time.After(50 * time.Millisecond):
			return false
		}
	}, fixture.Soon, time.Millisecond)
	require.Eventually(t, func() bool { return log.Count("info: The consumer group had ended and begins anew") == 1 }, fixture.Soon, time.Millisecond)
	assert.Equal(t, log.Count("error: Cannot claim messages"), log.Count("error:"), "%v", log.Lines())
	require.NoError(t, sub.Close())
}

func TestControlDoesNotFindGroupsThatNobodyHas(t *testing.T) {
	s := fixture.New(t)
	c := newControl(t, s)
	s.Subscribe(group("billing"))
	for _, err := range []error{
		c.Pause(t.Context(), s.Topic, "biling", redisdelay.Pause{}),
		c.Resume(t.Context(), s.Topic, "biling"),
		c.Drain(t.Context(), s.Topic, "biling", nil),
		c.Pause(t.Context(), s.Topic, redisdelay.Broadcast, redisdelay.Pause{}),
	} {
		require.ErrorIs(t, err, redisdelay.ErrGroupNotFound)
	}
	require.NoError(t, c.Pause(t.Context(), s.Topic, redisdelay.AllGroups, redisdelay.Pause{}))
	require.NoError(t, c.Resume(t.Context(), s.Topic, redisdelay.AllGroups))
	require.NoError(t, c.Drain(t.Context(), s.Topic, redisdelay.AllGroups, nil))
}

// TestAnIdleGroupLastsThoughTheClockOfRedisIsSetForward: its consumer, who says only rarely that he is alive, is woken before the
// group ends.
func TestAnIdleGroupLastsThoughTheClockOfRedisIsSetForward(t *testing.T) {
	t.Parallel()
	for _, expiry := range []time.Duration{time.Minute, 5 * time.Second} { // longer and shorter than the notice
		t.Run(expiry.String(), func(t *testing.T) {
			t.Parallel()
			s := fixture.New(t)
			messages := s.Subscribe(group("g"), func(c *subConfig) { c.GroupExpiry, c.PollInterval = expiry, 5*time.Second })
			s.Publish("a")
			s.Expect(messages, "a")
			s.Idle(messages)
			lastsThroughAStep(s)
		})
	}
}

// lastsThroughAStep sets the clock forward for what the first partition knows of the group g, and waits until the group, once
// noticed, is found alive.
func lastsThroughAStep(s *fixture.Scene) {
	t := s.T
	t.Helper()
	const step = 5 * time.Minute
	earlier := func(key, field string, times ...int) { // as if these of its words were from before the step
		words := strings.Fields(s.Client.HGet(t.Context(), s.Key(key), field).Val())
		for _, n := range times {
			ms, err := strconv.ParseInt(words[n], 10, 64)
			require.NoError(t, err)
			words[n] = strconv.FormatInt(ms-step.Milliseconds(), 10)
		}
		require.NoError(t, s.Client.HSet(t.Context(), s.Key(key), field, strings.Join(words, " ")).Err())
	}
	for _, consumer := range s.Client.HKeys(t.Context(), s.Key("consumers:g")).Val() {
		earlier("consumers:g", consumer, 0, 1)
		earlier("claims:g", consumer, 1)
	}
	earlier("settings", "expiry:g", 1)
	require.NoError(t, s.Client.ZIncrBy(t.Context(), s.Key("expiry"), -float64(step.Milliseconds()), "g").Err())

	operator, err := admin.New(admin.Config{Client: s.Client})
	require.NoError(t, err)
	require.NoError(t, operator.Fix(t.Context(), func(admin.Finding) {}, nil, s.Topic))
	require.Eventually(t, func() bool {
		told := strings.Fields(s.Client.HGet(t.Context(), s.Key("settings"), "expiry:g").Val())
		if len(told) != 3 {
			return false
		}
		until, err := strconv.ParseInt(told[1], 10, 64)
		return err == nil && time.UnixMilli(until).After(s.Now())
	}, fixture.Soon, 10*time.Millisecond, "the group has ended")
}
