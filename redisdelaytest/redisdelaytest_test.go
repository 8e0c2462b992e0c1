package redisdelaytest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/redisdelaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func later(text string, by time.Duration) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), []byte(text))
	delay.Message(msg, delay.For(by))
	return msg
}

// diary has what happened, and when, as "1h0m0s text".
type diary struct {
	start time.Time

	mu      sync.Mutex
	entries []string // guarded by mu
}

func newDiary() *diary { return &diary{start: time.Now()} }

func (d *diary) add(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, fmt.Sprintf("%s %s", time.Since(d.start), text))
}

func (d *diary) lines() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.entries)
}

func publisher(t *testing.T, r *redisdelaytest.Redis) *redisdelay.Publisher {
	t.Helper()
	p, err := redisdelay.NewPublisher(r.PublisherConfig(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

// handle handles the messages of a topic one after the other, until the test ends.
func handle(
	t *testing.T, config redisdelay.SubscriberConfig, topic string, do func(*message.Message) error, middlewares ...message.HandlerMiddleware,
) {
	t.Helper()
	s, err := redisdelay.NewSubscriber(config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) }) // the router closes it too, but does not wait for it
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(t, err)
	router.AddMiddleware(middlewares...)
	router.AddConsumerHandler("handler", topic, s, do)
	run(t, router)
}

// run runs a router until the test ends.
func run(t *testing.T, router *message.Router) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() { assert.NoError(t, errors.Join(router.Close(), <-ended)) })
}

func TestMessagesAreDeliveredOnTimeAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := redisdelaytest.New(t), newDiary()
		p := publisher(t, r)
		handle(t, r.SubscriberConfig("g"), "reminders", func(msg *message.Message) error {
			d.add(string(msg.Payload))
			return nil
		})
		require.NoError(t, p.Publish("reminders", later("second", 2*time.Hour), later("third", 1000*time.Hour), later("first", time.Hour)))
		r.Advance(time.Hour - time.Millisecond)
		assert.Empty(t, d.lines())
		r.Advance(time.Millisecond)
		assert.Equal(t, []string{"1h0m0s first"}, d.lines())
		r.Advance(999 * time.Hour)
		assert.Equal(t, []string{"1h0m0s first", "2h0m0s second", "1000h0m0s third"}, d.lines())
		assert.Empty(t, r.Undelivered("reminders"))
	})
}

var runs = flag.Int("runs", 3, "how often the tests that compare runs do so")

func TestThirtyDaysOfRemindersWithGrowingRetries(t *testing.T) {
	var first []string
	for range *runs {
		synctest.Test(t, func(t *testing.T) {
			r, d := redisdelaytest.New(t), newDiary()
			p := publisher(t, r)
			config := r.SubscriberConfig("g")
			config.NackDelay = func(attempt int) time.Duration { return time.Duration(attempt) * 24 * time.Hour }
			handle(t, config, "reminders", func(msg *message.Message) error {
				d.add(string(msg.Payload))
				if delivery, _ := redisdelay.DeliveryFromContext(msg.Context()); delivery.Attempt < 4 {
					return errors.New("not reached")
				}
				return nil
			})
			for day := range 15 {
				require.NoError(t, p.Publish("reminders", later(fmt.Sprint(day), time.Duration(day)*24*time.Hour+time.Hour)))
			}
			r.Advance(30 * 24 * time.Hour)
			assert.Len(t, d.lines(), 60)
			if first == nil {
				first = d.lines()
			}
			assert.Equal(t, first, d.lines())
		})
	}
}

// TestEachRunHasTheSameTimes compares runs with retries and two ordering keys. It sorts the deliveries, because the order at one
// moment may differ.
func TestEachRunHasTheSameTimes(t *testing.T) {
	var first []string
	for range *runs {
		synctest.Test(t, func(t *testing.T) {
			r, d := redisdelaytest.New(t), newDiary()
			p := publisher(t, r)
			handle(t, r.SubscriberConfig("g"), "work", func(msg *message.Message) error {
				delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
				d.add(fmt.Sprint(string(msg.Payload), " ", delivery.Attempt))
				if msg.Payload[0]%3 == 0 && delivery.Attempt < 3 {
					return errors.New("not now")
				}
				return nil
			})
			for i := range 12 {
				msg := later(string(rune('a'+i)), time.Hour)
				if key := i % 3; key < 2 {
					redisdelay.SetOrderingKey(msg, fmt.Sprint("key", key))
				}
				require.NoError(t, p.Publish("work", msg))
			}
			r.Advance(2 * time.Hour)
			lines := slices.Sorted(slices.Values(d.lines()))
			if first == nil {
				first = lines
			}
			assert.Equal(t, first, lines)
		})
	}
}

func TestPendingListsWaitingMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := redisdelaytest.New(t)
		assert.Empty(t, r.Undelivered("reminders"))
		p := publisher(t, r)
		start := time.Now()
		keyed := later("b", 2*time.Hour)
		redisdelay.SetKey(keyed, "order-1")
		require.NoError(t, p.Publish("reminders", keyed, later("a", time.Hour)))
		grows := middleware.DelayOnError{InitialInterval: time.Hour, Multiplier: 2, MaxInterval: 24 * time.Hour}
		handle(t, r.SubscriberConfig("g"), "reminders",
			func(*message.Message) error { return errors.New("not now") }, grows.Middleware)
		show := func() (list []string) {
			for _, m := range r.Undelivered("reminders") {
				list = append(list, strings.TrimSpace(fmt.Sprintln(m.DueAt.Sub(start), string(m.Message.Payload), m.Key, m.Group)))
			}
			return list
		}
		assert.Equal(t, []string{"1h0m0s a", "2h0m0s b order-1"}, show())
		_, err := p.Reschedule(t.Context(), "reminders", "order-1", delay.For(3*time.Hour))
		require.NoError(t, err)
		r.Advance(time.Hour)
		assert.Equal(t, []string{"2h0m0s a  g", "3h0m0s b order-1"}, show(), "the first retry comes after InitialInterval")
	})
}

func TestLeasesAndDeadMessagesFollowTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := redisdelaytest.New(t), newDiary()
		p := publisher(t, r)
		config := r.SubscriberConfig("g")
		config.MaxDeliveries = 2
		config.NackDelay = func(int) time.Duration { return 24 * time.Hour }
		handle(t, config, "work", func(msg *message.Message) error {
			d.add("handled")
			select {
			case <-msg.Context().Done():
			case <-time.After(5 * time.Minute): // ten leases: heartbeats keep them
			}
			return errors.New("failed")
		})
		require.NoError(t, p.Publish("work", later("a", time.Hour)))
		r.Advance(90 * time.Hour)
		assert.Equal(t, []string{"1h0m0s handled", "25h5m0s handled"}, d.lines())
		assert.Empty(t, r.Undelivered("work"), "it is a dead message now")
	})
}
