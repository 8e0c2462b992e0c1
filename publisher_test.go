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
		"the same key twice":      {bad: withKey("bad", "k", delay.For(0)), is: redisdelay.ErrDuplicateMessage},
		"delay generator refuses": {bad: good, config: refusingDelays, is: errMarshal},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if test.config == nil {
				test.config = func(*redisdelay.PublisherConfig) {}
			}
			first := message.NewMessage("first", nil)
			if errors.Is(test.is, redisdelay.ErrDuplicateMessage) {
				first = withKey("first", "k", delay.For(0))
			}
			err := b.publisher(test.config).Publish(b.topic, first, test.bad)
			if test.as != nil {
				require.ErrorAs(t, err, test.as)
			} else {
				require.ErrorIs(t, err, test.is)
			}
			assert.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
			assert.Empty(t, b.keys())
		})
	}
}

func refusingDelays(c *redisdelay.PublisherConfig) {
	c.Delay.DefaultDelayGenerator = func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) {
		return delay.Delay{}, errMarshal
	}
}

func TestPublishNeedsATopic(t *testing.T) {
	b := newBench(t)
	p := b.publisher()
	require.ErrorIs(t, p.Publish("", message.NewMessage("a", nil)), redisdelay.ErrEmptyTopic)
	require.ErrorIs(t, p.Cancel(t.Context(), "", "k"), redisdelay.ErrEmptyTopic)
	require.NoError(t, p.Publish(b.topic), "nothing to publish is no error")
}

func TestPublishAfterCloseFailsAndLeavesTheClientOpen(t *testing.T) {
	b := newBench(t)
	p := b.publisher()
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Publish(b.topic, message.NewMessage("a", nil)), redisdelay.ErrPublisherClosed)
	require.ErrorIs(t, p.Cancel(t.Context(), b.topic, "k"), redisdelay.ErrPublisherClosed)
	require.ErrorIs(t, p.Reschedule(t.Context(), b.topic, "k", delay.For(0)), redisdelay.ErrPublisherClosed)
	require.NoError(t, b.client.Ping(t.Context()).Err())
}

func TestPublishNamesAKeyOfAnotherType(t *testing.T) {
	b := newBench(t)
	key := "{redisdelay:" + b.topic + ":0}:scheduled"
	require.NoError(t, b.client.Set(t.Context(), key, "x", 0).Err())
	err := b.publisher().Publish(b.topic, message.NewMessage("a", nil))
	var typeErr *redisdelay.KeyTypeError
	require.ErrorAs(t, err, &typeErr)
	assert.Equal(t, key, typeErr.Key)
	assert.Equal(t, []string{"scheduled"}, b.keys())
}

func TestDelayComesFromTheContextOrTheGenerator(t *testing.T) {
	b := newBench(t)
	messages := b.subscribe()
	p := b.publisher(func(c *redisdelay.PublisherConfig) {
		c.Delay.DefaultDelayGenerator = func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) {
			return delay.For(200 * time.Millisecond), nil
		}
	})
	fromContext := &message.Message{UUID: "context"} // without a metadata map
	fromContext.SetContext(delay.WithContext(context.Background(), delay.For(400*time.Millisecond)))
	start := b.redisTime()
	require.NoError(t, p.Publish(b.topic, fromContext, message.NewMessage("generator", nil)))

	msg := b.next(messages)
	assert.Equal(t, "generator", msg.UUID)
	assert.GreaterOrEqual(t, b.redisTime().Sub(start), 200*time.Millisecond)
	msg.Ack()
	msg = b.next(messages)
	assert.Equal(t, "context", msg.UUID)
	assert.GreaterOrEqual(t, b.redisTime().Sub(start), 400*time.Millisecond)
	msg.Ack()
}

func TestALargeCallIsStoredInPartsInOrder(t *testing.T) {
	b := newBench(t)
	var uuids []string
	for i := range 2500 {
		uuids = append(uuids, fmt.Sprint(i))
	}
	b.publish(uuids...)
	b.expect(b.subscribe(), uuids...)
	b.settled()
}

func TestMessagesOfOnePublisherWithOneDelayKeepTheirOrder(t *testing.T) {
	b := newBench(t)
	p := b.publisher()
	var uuids []string
	for i := range 1000 {
		uuids = append(uuids, fmt.Sprint(i))
		require.NoError(t, p.Publish(b.topic, delayed(uuids[i], delay.For(1500*time.Millisecond))))
	}
	b.expect(b.subscribe(), uuids...)
}

func TestARestartLosesNothing(t *testing.T) {
	server := redistest.New(t, redistest.Durable...)
	b := newBenchOn(t, server)
	p := b.publisher()
	messages := b.subscribe()
	const count, publishers = 3000, 20
	var publishing sync.WaitGroup
	for n := range publishers {
		publishing.Go(func() {
			for i := range count / publishers {
				assert.NoError(t, p.Publish(b.topic, message.NewMessage(fmt.Sprint(n, "/", i), nil)))
			}
		})
	}
	seen := map[string]int{}
	for len(seen) < count {
		if len(seen) == count/3 || len(seen) == 2*count/3 {
			require.NoError(t, server.Signal(syscall.SIGKILL))
		}
		msg := b.next(messages)
		seen[msg.UUID]++
		msg.Ack()
	}
	publishing.Wait()
	b.settled()
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
	b := newBenchWith(t, impatient)
	p := b.publisher(func(c *redisdelay.PublisherConfig) { c.Partitions = 3 })
	require.NoError(t, server.Down())
	published := make(chan error, 1)
	go func() { published <- p.Publish(b.topic, message.NewMessage("a", nil)) }()
	select {
	case err := <-published:
		require.Fail(t, "published without Redis", err)
	case <-time.After(200 * time.Millisecond): // it tries, and fails
	}
	server.Up()
	require.NoError(t, <-published)
	b.expect(b.subscribe(), "a")
}

func TestPublishGivesUpWhenRedisDoesNotAnswer(t *testing.T) {
	server := redistest.New(t)
	b := newBenchOn(t, server)
	p := b.publisher(func(c *redisdelay.PublisherConfig) { c.PublishTimeout = 300 * time.Millisecond })
	require.NoError(t, p.Publish(b.topic, message.NewMessage("a", nil)))
	require.NoError(t, server.Signal(syscall.SIGSTOP))
	err := p.Publish(b.topic, message.NewMessage("b", nil))
	require.ErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	err = p.Publish(b.topic+"-new", message.NewMessage("a", nil))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown, "the partitions of the topic are not known yet")
	require.NoError(t, server.Signal(syscall.SIGCONT))
}

func TestPublishEndsWithTheContextOfAnyMessage(t *testing.T) {
	server := redistest.New(t)
	b := newBenchOn(t, server)
	p := b.publisher(func(c *redisdelay.PublisherConfig) { c.PublishTimeout = time.Minute })
	require.NoError(t, p.Publish(b.topic, message.NewMessage("first", nil)))
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
		go func() { published <- p.Publish(b.topic, call...) }()
		cancel(gone)
		require.ErrorIs(t, <-published, gone, "message %d", ending)
	}
	require.NoError(t, server.Signal(syscall.SIGCONT))
}

func TestPublishFailsAtOnceOnAClosedClient(t *testing.T) {
	b := newBench(t)
	client := redistest.Shared(t).Client(t)
	p := b.publisher(func(c *redisdelay.PublisherConfig) { c.Client = client })
	require.NoError(t, client.Close())
	start := time.Now()
	require.ErrorIs(t, p.Publish(b.topic, message.NewMessage("a", nil)), redis.ErrClosed)
	assert.Less(t, time.Since(start), 5*time.Second, "no use in trying again")
}

func TestDuplicates(t *testing.T) {
	uuidsWaiting := func(b *bench) []string {
		messages := b.subscribe()
		require.NoError(b.t, b.publisher().Reschedule(b.t.Context(), b.topic, "k", delay.For(0)))
		msg := b.next(messages)
		msg.Ack()
		b.settled()
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
			b := newBench(t)
			p := b.publisher(func(c *redisdelay.PublisherConfig) { c.OnDuplicate = policy })
			require.NoError(t, p.Publish(b.topic, withKey("first", "k", delay.For(time.Hour))))
			require.ErrorIs(t, p.Publish(b.topic, withKey("second", "k", delay.For(time.Hour))), want.err)
			assert.Equal(t, []string{want.left}, uuidsWaiting(b))
			require.NoError(t, p.Publish(b.topic, withKey("third", "k", delay.For(0))), "the key is free again")
		})
	}
}

func TestCancelAndReschedule(t *testing.T) {
	b := newBench(t)
	p := b.publisher()
	messages := b.subscribe()
	require.NoError(t, p.Publish(b.topic, withKey("a", "a", delay.For(time.Hour)), withKey("b", "b", delay.For(time.Hour))))
	require.NoError(t, p.Cancel(t.Context(), b.topic, "a"))
	require.ErrorIs(t, p.Cancel(t.Context(), b.topic, "a"), redisdelay.ErrMessageNotFound)
	require.NoError(t, p.Reschedule(t.Context(), b.topic, "b", delay.For(200*time.Millisecond)))
	b.expect(messages, "b")
	b.settled()
	require.ErrorIs(t, p.Reschedule(t.Context(), b.topic, "b", delay.For(0)), redisdelay.ErrMessageNotFound)
	require.ErrorIs(t, p.Cancel(t.Context(), b.topic, ""), redisdelay.ErrInvalidKey)
}

func TestAMessageCancelledWhileHandledDoesNotComeBack(t *testing.T) {
	b := newBench(t)
	p := b.publisher()
	messages := b.subscribe(func(c *redisdelay.SubscriberConfig) { c.LeaseDuration = 300 * time.Millisecond })
	require.NoError(t, p.Publish(b.topic, withKey("a", "k", delay.For(0))))
	msg := b.next(messages)
	require.NoError(t, p.Cancel(t.Context(), b.topic, "k"))
	ended(t, msg.Context(), redisdelay.ErrLeaseLost)
	msg.Nack()
	b.idle(messages)
	b.settled()
}

// TestADeliveredMessagePublishedAgainIsNotDelayedAgain publishes messages with the
// delay metadata of the delivered one, by way of what requeuers and poison queues do.
func TestADeliveredMessagePublishedAgainIsNotDelayedAgain(t *testing.T) {
	b := newBench(t)
	p := b.publisher()
	messages := b.subscribe()
	original := withMetadata("a", nil, delay.DelayedForKey, "2s") // for alone would count again
	redisdelay.SetKey(original, "k")
	require.NoError(t, p.Publish(b.topic, original))
	msg := b.next(messages)
	require.NoError(t, p.Publish(b.topic, msg), "neither delayed nor a duplicate of itself")
	published := b.redisTime()
	msg.Ack()
	again := b.next(messages)
	assert.False(t, dueAt(t, again).After(published))
	require.NoError(t, p.Publish(b.topic, again.CopyWithContext()))
	published = b.redisTime()
	again.Ack()
	last := b.next(messages)
	assert.False(t, dueAt(t, last).After(published))
	last.Ack()
}

// TestADelayThatIsOverStaysOverInACopyThatWasEncoded is what relays do: neither the context
// nor the strings of the message that was delivered are left.
func TestADelayThatIsOverStaysOverInACopyThatWasEncoded(t *testing.T) {
	b := newBench(t)
	p := b.publisher()
	messages := b.subscribe()
	original := withKey("a", "k", delay.For(time.Hour)) // its headers say: in an hour
	require.NoError(t, p.Publish(b.topic, original))
	require.NoError(t, p.Reschedule(t.Context(), b.topic, "k", delay.For(0)))
	msg := b.next(messages)
	encoded, err := json.Marshal(msg.Metadata)
	require.NoError(t, err)
	msg.Ack()
	b.settled()

	relayed := message.NewMessage("relayed", nil)
	require.NoError(t, json.Unmarshal(encoded, &relayed.Metadata))
	require.NoError(t, p.Publish(b.topic, relayed))
	published := b.redisTime()
	again := b.next(messages)
	assert.Equal(t, "relayed", again.UUID)
	assert.False(t, dueAt(t, again).After(published))
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
			next := delayed(msg.UUID, delay.For(pause))
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
			b := newBench(t)
			p := b.publisher()
			messages := b.subscribe()
			require.NoError(t, p.Publish(b.topic, delayed("a", delay.For(pause))))
			for range 20 {
				msg := b.next(messages)
				made := b.redisTime()
				require.NoError(t, p.Publish(b.topic, again(msg)))
				msg.Ack()
				next := b.next(messages)
				require.False(t, dueAt(t, next).Before(made.Add(pause)), "early by %s", made.Add(pause).Sub(dueAt(t, next)))
				require.NoError(t, p.Publish(b.topic, again(next)))
				next.Ack()
			}
		})
	}
}

func TestAHandlerMayTakeOverTheKeyOfItsMessage(t *testing.T) {
	b := newBench(t)
	p := b.publisher(func(c *redisdelay.PublisherConfig) { c.OnDuplicate = redisdelay.ReplaceDuplicate })
	messages := b.subscribe()
	require.NoError(t, p.Publish(b.topic, withKey("first", "k", delay.For(0))))
	msg := b.next(messages)
	next := withKey("next", "k", delay.For(time.Hour))
	next.SetContext(msg.Context())
	require.NoError(t, p.Publish(b.topic, next))
	msg.Ack()
	require.NoError(t, p.Reschedule(t.Context(), b.topic, "k", delay.For(0)))
	b.expect(messages, "next")
	b.settled()
}
