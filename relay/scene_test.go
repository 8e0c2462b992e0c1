package relay_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

var errDown = errors.New("the target is down")

// target is a broker that remembers what it gets, call by call.
type target struct {
	mu     sync.Mutex
	calls  [][]*message.Message                                  // guarded by mu; those that succeeded
	tries  int                                                   // guarded by mu
	reject func(topic string, messages []*message.Message) error // guarded by mu
	closed bool                                                  // guarded by mu
}

func (t *target) Publish(topic string, messages ...*message.Message) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tries++
	if t.reject != nil {
		if err := t.reject(topic, messages); err != nil {
			return err
		}
	}
	t.calls = append(t.calls, messages)
	return nil
}

func (t *target) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return nil
}

func (t *target) rejecting(reject func(topic string, messages []*message.Message) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reject = reject
}

func (t *target) tried() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tries
}

// messages are all that the target has got, in order.
func (t *target) messages() []*message.Message {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Concat(t.calls...)
}

func (t *target) uuids() []string {
	var list []string
	for _, msg := range t.messages() {
		list = append(list, msg.UUID)
	}
	return list
}

// rejecting rejects messages with these UUIDs.
func rejecting(uuids ...string) func(string, []*message.Message) error {
	return func(_ string, messages []*message.Message) error {
		for _, msg := range messages {
			if slices.Contains(uuids, msg.UUID) {
				return errors.New("rejected: " + msg.UUID)
			}
		}
		return nil
	}
}

// scene is a topic whose delayed messages are relayed.
type scene struct {
	*fixture.Scene
	target *target
}

func newScene(t *testing.T) *scene {
	t.Helper()
	return &scene{fixture.New(t), &target{}}
}

func (s *scene) publisher(change ...func(*redisdelay.PublisherConfig)) *relay.Publisher {
	s.T.Helper()
	publisher, err := relay.NewPublisher(relay.PublisherConfig{Target: s.target, Delayed: s.Publisher(change...)})
	require.NoError(s.T, err)
	return publisher
}

// run runs a relay of the topic until the test, or the returned function, ends it.
func (s *scene) run(change ...func(*relay.Config)) (stop func()) {
	s.T.Helper()
	return s.start(s.relay(change...))
}

// relay makes a relay of the topic.
func (s *scene) relay(change ...func(*relay.Config)) *relay.Relay {
	s.T.Helper()
	config := relay.Config{Client: s.Client, Target: s.target, Topics: []string{s.Topic}, CloseTimeout: time.Second}
	for _, c := range change {
		c(&config)
	}
	r, err := relay.New(config, s.Log)
	require.NoError(s.T, err)
	return r
}

func (s *scene) start(r *relay.Relay) (stop func()) {
	s.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(s.T, <-ended)
	})
	s.T.Cleanup(stop)
	return stop
}

func (s *scene) until(what string, met func() bool) {
	s.T.Helper()
	require.Eventually(s.T, met, fixture.Soon, 5*time.Millisecond, what)
}

// gets waits until the target has these messages and nothing waits.
func (s *scene) gets(uuids ...string) {
	s.T.Helper()
	s.until("the target gets the messages", func() bool { return len(s.target.messages()) >= len(uuids) })
	require.Equal(s.T, uuids, s.target.uuids())
}
