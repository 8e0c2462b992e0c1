package delivery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

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

func run(g *fakeGroup, change ...func(*Config)) *running {
	return runTopic(&fakeTopic{groups: []*fakeGroup{g}}, change...)
}

func runTopic(topic *fakeTopic, change ...func(*Config)) *running {
	return runAt(topic, len(topic.groups), change...)
}

func runAt(topic Topic, partitions int, change ...func(*Config)) *running {
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
	go func() { r.ended <- r.Run(ctx, partitions) }()
	return r
}

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
