package delivery

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/notify"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

const (
	testLease        = 30 * time.Second
	testPoll         = 5 * time.Second
	testCloseTimeout = 10 * time.Second
)

// running is a subscription under test.
type running struct {
	*Subscription
	stop  context.CancelFunc
	ended chan error
}

// run runs a subscription, which ends with the test at the latest.
func run(t *testing.T, g *fakeGroup, change ...func(*Config)) *running {
	t.Helper()
	return runTopic(t, &fakeTopic{groups: []*fakeGroup{g}}, change...)
}

func runTopic(t *testing.T, topic *fakeTopic, change ...func(*Config)) *running {
	t.Helper()
	return runAt(t, topic, len(topic.groups), change...)
}

func runAt(t *testing.T, topic Topic, partitions int, change ...func(*Config)) *running {
	t.Helper()
	config := Config{
		Decode: func(ctx context.Context, m queue.Claimed) (*message.Message, time.Time, error) {
			msg := message.NewMessage(m.ID, nil)
			msg.SetContext(ctx)
			return msg, time.Time{}, nil
		},
		Redelivery: func(context.Context, *message.Message) (queue.Nack, error) {
			return queue.Nack{Delay: time.Second}, nil
		},
		Consumer:     "c",
		MaxInFlight:  1,
		MaxBytes:     16 << 20,
		Lease:        testLease,
		PollInterval: testPoll,
		PingInterval: notify.Interval,
		CloseTimeout: testCloseTimeout,
	}
	for _, c := range change {
		c(&config)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Subscription: New(topic, config), stop: cancel, ended: make(chan error, 1)}
	r.Start(ctx, partitions, func(err error) {
		r.ended <- err
		close(r.ended)
	})
	t.Cleanup(func() { r.end(t) })
	return r
}

// end ends a subscription, unless it has ended.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	require.NoError(t, <-r.ended)
}

// garbled makes a message one that cannot be decoded.
func garbled(id string) func(*Config) {
	return func(c *Config) {
		decode := c.Decode
		c.Decode = func(ctx context.Context, m queue.Claimed) (*message.Message, time.Time, error) {
			if m.ID == id {
				return nil, time.Time{}, errGarbage
			}
			return decode(ctx, m)
		}
	}
}

var errGarbage = errors.New("garbage")

// bubble runs a test on a clock of its own (testing/synctest).
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // lets a bubble's clock run

// learn makes a subscription expect fast handlers.
func learn(r *running, messages int) {
	for range messages {
		(<-r.Messages()).Ack()
	}
}

// held is how many messages a subscription has claimed and not handed out or given back.
func (g *fakeGroup) held(total, handedOut int) (held int) {
	g.view(func() { held = total - len(g.ready) - handedOut - len(g.released) })
	return held
}
