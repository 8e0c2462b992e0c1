package redisdelay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

var errMarshal = errors.New("marshal")

type failingMarshaler struct{}

func (failingMarshaler) Marshal(string, *message.Message) ([]byte, error) { return nil, errMarshal }

func TestPublishRefusesBadInputAndStoresNothing(t *testing.T) {
	good := message.NewMessage("good", nil)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	late := message.NewMessage("late", nil)
	late.SetContext(over)
	var delayErr *redisdelay.DelayError
	tests := map[string]struct {
		bad    *message.Message
		config func(*redisdelay.PublisherConfig)
		is     error
		as     any
	}{
		"nil message":             {bad: nil, is: redisdelay.ErrNilMessage},
		"malformed until":         {bad: withMetadata("bad", nil, delay.DelayedUntilKey, "tomorrow"), as: &delayErr},
		"malformed for":           {bad: withMetadata("bad", nil, delay.DelayedForKey, "30"), as: &delayErr},
		"absurd for":              {bad: withMetadata("bad", nil, delay.DelayedForKey, "99999999h"), as: &delayErr},
		"payload too large":       {bad: message.NewMessage("bad", make([]byte, 4<<20)), is: redisdelay.ErrMessageTooLarge},
		"empty key":               {bad: withMetadata("bad", nil, redisdelay.KeyMetadata, ""), is: redisdelay.ErrInvalidKey},
		"long key":                {bad: withMetadata("bad", nil, redisdelay.KeyMetadata, strings.Repeat("k", 513)), is: redisdelay.ErrInvalidKey},
		"marshaler fails":         {bad: good, config: func(c *redisdelay.PublisherConfig) { c.Marshaler = failingMarshaler{} }, is: errMarshal},
		"context that has ended":  {bad: late, is: context.Canceled},
		"the same key twice":      {bad: fixture.Keyed("bad", "k", 0), is: redisdelay.ErrDuplicateMessage},
		"delay generator refuses": {bad: good, config: refusingDelays, is: errMarshal},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			if test.config == nil {
				test.config = func(*redisdelay.PublisherConfig) {}
			}
			first := message.NewMessage("first", nil)
			if errors.Is(test.is, redisdelay.ErrDuplicateMessage) {
				first = fixture.Keyed("first", "k", 0)
			}
			err := s.Publisher(test.config).Publish(s.Topic, first, test.bad)
			if test.as != nil {
				require.ErrorAs(t, err, test.as)
			} else {
				require.ErrorIs(t, err, test.is)
			}
			assert.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
			assert.Empty(t, s.Kinds())
		})
	}
}

func refusingDelays(c *redisdelay.PublisherConfig) {
	c.Delay.DefaultDelayGenerator = func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) {
		return delay.Delay{}, errMarshal
	}
}

func TestPublishNeedsATopic(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	require.ErrorIs(t, p.Publish("", message.NewMessage("a", nil)), redisdelay.ErrEmptyTopic)
	require.ErrorIs(t, p.Cancel(t.Context(), "", "k"), redisdelay.ErrEmptyTopic)
	require.NoError(t, p.Publish(s.Topic), "nothing to publish is no error")
}

func TestPublishAfterCloseFailsAndLeavesTheClientOpen(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Publish(s.Topic, message.NewMessage("a", nil)), redisdelay.ErrPublisherClosed)
	require.ErrorIs(t, p.Cancel(t.Context(), s.Topic, "k"), redisdelay.ErrPublisherClosed)
	require.ErrorIs(t, p.Reschedule(t.Context(), s.Topic, "k", delay.For(0)), redisdelay.ErrPublisherClosed)
	require.NoError(t, s.Client.Ping(t.Context()).Err())
}

func TestPublishNamesAKeyOfAnotherType(t *testing.T) {
	s := fixture.New(t)
	key := s.Key("scheduled")
	require.NoError(t, s.Client.Set(t.Context(), key, "x", 0).Err())
	err := s.Publisher().Publish(s.Topic, message.NewMessage("a", nil))
	var typeErr *redisdelay.KeyTypeError
	require.ErrorAs(t, err, &typeErr)
	assert.Equal(t, key, typeErr.Key)
	assert.Equal(t, []string{"scheduled"}, s.Kinds())
}

func TestDelayComesFromTheContextOrTheGenerator(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe()
	p := s.Publisher(func(c *redisdelay.PublisherConfig) {
		c.Delay.DefaultDelayGenerator = func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) {
			return delay.For(200 * time.Millisecond), nil
		}
	})
	fromContext := &message.Message{UUID: "context"} // without a metadata map
	fromContext.SetContext(delay.WithContext(context.Background(), delay.For(400*time.Millisecond)))
	start := s.Now()
	require.NoError(t, p.Publish(s.Topic, fromContext, message.NewMessage("generator", nil)))

	msg := s.Next(messages)
	assert.Equal(t, "generator", msg.UUID)
	assert.GreaterOrEqual(t, s.Now().Sub(start), 200*time.Millisecond)
	msg.Ack()
	msg = s.Next(messages)
	assert.Equal(t, "context", msg.UUID)
	assert.GreaterOrEqual(t, s.Now().Sub(start), 400*time.Millisecond)
	msg.Ack()
}

func TestALargeCallIsStoredInPartsInOrder(t *testing.T) {
	s := fixture.New(t)
	var uuids []string
	for i := range 2500 {
		uuids = append(uuids, fmt.Sprint(i))
	}
	s.Publish(uuids...)
	s.Expect(s.Subscribe(), uuids...)
	s.Settled()
}

func TestMessagesOfOnePublisherWithOneDelayKeepTheirOrder(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	var uuids []string
	for i := range 1000 {
		uuids = append(uuids, fmt.Sprint(i))
		require.NoError(t, p.Publish(s.Topic, fixture.Delayed(uuids[i], 1500*time.Millisecond)))
	}
	s.Expect(s.Subscribe(), uuids...)
}

func TestARestartLosesNothing(t *testing.T) {
	server := redistest.New(t, redistest.Durable...)
	s := fixture.NewOn(t, server)
	p := s.Publisher()
	messages := s.Subscribe()
	const count, publishers = 3000, 20
	var publishing sync.WaitGroup
	for n := range publishers {
		publishing.Go(func() {
			for i := range count / publishers {
				assert.NoError(t, p.Publish(s.Topic, message.NewMessage(fmt.Sprint(n, "/", i), nil)))
			}
		})
	}
	seen := map[string]int{}
	for len(seen) < count {
		if len(seen) == count/3 || len(seen) == 2*count/3 {
			require.NoError(t, server.Signal(syscall.SIGKILL))
		}
		msg := s.Next(messages)
		seen[msg.UUID]++
		msg.Ack()
	}
	publishing.Wait()
	s.Settled()
	redelivered := 0
	for _, n := range seen {
		redelivered += n - 1
	}
	t.Logf("%d of %d messages were redelivered", redelivered, count)
}

func TestPublishToANewTopicRidesOutADeadRedis(t *testing.T) {
	server := redistest.New(t)
	impatient := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { require.NoError(t, impatient.Close()) })
	s := fixture.NewWith(t, impatient)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Partitions = 3 })
	require.NoError(t, server.Down())
	published := make(chan error, 1)
	go func() { published <- p.Publish(s.Topic, message.NewMessage("a", nil)) }()
	select {
	case err := <-published:
		require.Fail(t, "published without Redis", err)
	case <-time.After(200 * time.Millisecond): // it tries, and fails
	}
	server.Up()
	require.NoError(t, <-published)
	s.Expect(s.Subscribe(), "a")
}

func TestPublishGivesUpWhenRedisDoesNotAnswer(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.PublishTimeout = 300 * time.Millisecond })
	require.NoError(t, p.Publish(s.Topic, message.NewMessage("a", nil)))
	require.NoError(t, server.Signal(syscall.SIGSTOP))
	err := p.Publish(s.Topic, message.NewMessage("b", nil))
	require.ErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	err = p.Publish(s.Topic+"-new", message.NewMessage("a", nil))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown, "the partitions of the topic are not known yet")
	require.NoError(t, server.Signal(syscall.SIGCONT))
}

func TestPublishEndsWithTheContextOfAnyMessage(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.PublishTimeout = time.Minute })
	require.NoError(t, p.Publish(s.Topic, message.NewMessage("first", nil)))
	require.NoError(t, server.Signal(syscall.SIGSTOP))
	gone := errors.New("the caller is gone")
	for ending := range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		var call []*message.Message
		for n := range 3 {
			msg := message.NewMessage(fmt.Sprint(n), nil)
			if n == ending {
				msg.SetContext(ctx)
			}
			call = append(call, msg)
		}
		published := make(chan error, 1)
		go func() { published <- p.Publish(s.Topic, call...) }()
		cancel(gone)
		require.ErrorIs(t, <-published, gone, "message %d", ending)
	}
	require.NoError(t, server.Signal(syscall.SIGCONT))
}

func TestPublishFailsAtOnceOnAClosedClient(t *testing.T) {
	s := fixture.New(t)
	client := redistest.Shared(t).Client(t)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Client = client })
	require.NoError(t, client.Close())
	start := time.Now()
	require.ErrorIs(t, p.Publish(s.Topic, message.NewMessage("a", nil)), redis.ErrClosed)
	assert.Less(t, time.Since(start), 5*time.Second, "no use in trying again")
}

func TestDuplicates(t *testing.T) {
	uuidsWaiting := func(s *fixture.Scene) []string {
		messages := s.Subscribe()
		require.NoError(s.T, s.Publisher().Reschedule(s.T.Context(), s.Topic, "k", delay.For(0)))
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
	require.NoError(t, p.Cancel(t.Context(), s.Topic, "a"))
	require.ErrorIs(t, p.Cancel(t.Context(), s.Topic, "a"), redisdelay.ErrMessageNotFound)
	require.NoError(t, p.Reschedule(t.Context(), s.Topic, "b", delay.For(200*time.Millisecond)))
	s.Expect(messages, "b")
	s.Settled()
	require.ErrorIs(t, p.Reschedule(t.Context(), s.Topic, "b", delay.For(0)), redisdelay.ErrMessageNotFound)
	require.ErrorIs(t, p.Cancel(t.Context(), s.Topic, ""), redisdelay.ErrInvalidKey)
}

func TestAMessageCancelledWhileHandledDoesNotComeBack(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.LeaseDuration = 300 * time.Millisecond })
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "k", 0)))
	msg := s.Next(messages)
	require.NoError(t, p.Cancel(t.Context(), s.Topic, "k"))
	s.Ended(msg.Context(), redisdelay.ErrLeaseLost)
	msg.Nack()
	s.Idle(messages)
	s.Settled()
}

// TestADeliveredMessagePublishedAgainIsNotDelayedAgain publishes messages with the
// delay metadata of the delivered one, by way of what requeuers and poison queues do.
func TestADeliveredMessagePublishedAgainIsNotDelayedAgain(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe()
	original := withMetadata("a", nil, delay.DelayedForKey, "2s") // for alone would count again
	redisdelay.SetKey(original, "k")
	require.NoError(t, p.Publish(s.Topic, original))
	msg := s.Next(messages)
	require.NoError(t, p.Publish(s.Topic, msg), "neither delayed nor a duplicate of itself")
	published := s.Now()
	msg.Ack()
	again := s.Next(messages)
	assert.False(t, fixture.Delivery(t, again).DueAt.After(published))
	require.NoError(t, p.Publish(s.Topic, again.CopyWithContext()))
	published = s.Now()
	again.Ack()
	last := s.Next(messages)
	assert.False(t, fixture.Delivery(t, last).DueAt.After(published))
	last.Ack()
}

// TestADelayThatIsOverStaysOverInACopyThatWasEncoded is what relays do: neither the context
// nor the strings of the message that was delivered are left.
func TestADelayThatIsOverStaysOverInACopyThatWasEncoded(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe()
	original := fixture.Keyed("a", "k", time.Hour) // its headers say: in an hour
	require.NoError(t, p.Publish(s.Topic, original))
	require.NoError(t, p.Reschedule(t.Context(), s.Topic, "k", delay.For(0)))
	msg := s.Next(messages)
	encoded, err := json.Marshal(msg.Metadata)
	require.NoError(t, err)
	msg.Ack()
	s.Settled()

	relayed := message.NewMessage("relayed", nil)
	require.NoError(t, json.Unmarshal(encoded, &relayed.Metadata))
	require.NoError(t, p.Publish(s.Topic, relayed))
	published := s.Now()
	again := s.Next(messages)
	assert.Equal(t, "relayed", again.UUID)
	assert.False(t, fixture.Delivery(t, again).DueAt.After(published))
	again.Ack()
}

func dueAt(t *testing.T, msg *message.Message) time.Time {
	t.Helper()
	d, ok := redisdelay.DeliveryFromContext(msg.Context())
	require.True(t, ok)
	return d.DueAt
}

// TestADelayMadeByAHandlerCounts makes delays that read the same as the delivered
// ones, since Watermill's metadata have whole seconds.
func TestADelayMadeByAHandlerCounts(t *testing.T) {
	const pause = 50 * time.Millisecond
	ways := map[string]func(msg *message.Message) *message.Message{
		"a new message with the handler's context": func(msg *message.Message) *message.Message {
			next := message.NewMessage(msg.UUID, nil)
			next.SetContext(delay.WithContext(msg.Context(), delay.For(pause)))
			return next
		},
		"metadata set on a new message": func(msg *message.Message) *message.Message {
			next := fixture.Delayed(msg.UUID, pause)
			next.SetContext(msg.Context())
			return next
		},
		"metadata set on the message itself": func(msg *message.Message) *message.Message {
			delay.Message(msg, delay.For(pause))
			return msg
		},
	}
	for name, again := range ways {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			p := s.Publisher()
			messages := s.Subscribe()
			require.NoError(t, p.Publish(s.Topic, fixture.Delayed("a", pause)))
			for range 20 {
				msg := s.Next(messages)
				made := s.Now()
				require.NoError(t, p.Publish(s.Topic, again(msg)))
				msg.Ack()
				next := s.Next(messages)
				require.False(t, fixture.Delivery(t, next).DueAt.Before(made.Add(pause)), "early by %s", made.Add(pause).Sub(fixture.Delivery(t, next).DueAt))
				require.NoError(t, p.Publish(s.Topic, again(next)))
				next.Ack()
			}
		})
	}
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
	require.NoError(t, p.Reschedule(t.Context(), s.Topic, "k", delay.For(0)))
	s.Expect(messages, "next")
	s.Settled()
}
