package chaos

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// handle starts a subscription with the case's own handler, in a goroutine for each
// message. The returned function closes the subscriber and waits for the handlers.
func (s *scene) handle(config redisdelay.SubscriberConfig, handler func(msg *message.Message)) (stop func()) {
	s.T.Helper()
	if config.Client == nil {
		config.Client = s.dial()
	}
	if config.ConsumerGroup == "" {
		config.ConsumerGroup = "g"
	}
	subscriber, err := redisdelay.NewSubscriber(config, nil)
	require.NoError(s.T, err)
	messages, err := subscriber.Subscribe(context.Background(), s.Topic)
	require.NoError(s.T, err)
	var handlers sync.WaitGroup
	handlers.Go(func() {
		for msg := range messages {
			handlers.Go(func() { handler(msg) })
		}
	})
	stop = sync.OnceFunc(func() {
		_ = subscriber.Close()
		handlers.Wait()
	})
	s.T.Cleanup(stop)
	return stop
}

func (s *scene) publisher(config redisdelay.PublisherConfig) *redisdelay.Publisher {
	s.T.Helper()
	if config.Client == nil {
		config.Client = s.dial()
	}
	publisher, err := redisdelay.NewPublisher(config, nil)
	require.NoError(s.T, err)
	s.T.Cleanup(func() { _ = publisher.Close() })
	return publisher
}

// waits are how long messages waited once they were due, by UUID.
type waits struct {
	mu   sync.Mutex
	due  map[string]time.Time // guarded by mu; of messages that no handler has yet
	took []time.Duration      // guarded by mu
}

func newWaits() *waits { return &waits{due: map[string]time.Time{}} }

func (w *waits) publish(uuid string, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due[uuid] = due
}

// got records that a handler has the message.
func (w *waits) got(uuid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if due, waiting := w.due[uuid]; waiting {
		w.took = append(w.took, time.Since(due))
		delete(w.due, uuid)
	}
}

func (w *waits) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.due)
}

// longest returns the longest waits, longest first. Messages that still wait count too.
func (w *waits) longest(n int) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.Clone(w.took)
	for _, due := range w.due {
		all = append(all, time.Since(due))
	}
	slices.SortFunc(all, func(a, b time.Duration) int { return int(b - a) })
	all = all[:min(n, len(all))]
	for i := range all {
		all[i] = all[i].Round(time.Millisecond)
	}
	return all
}

// promptly is how late a message may be while a consumer is idle.
const promptly = 300 * time.Millisecond

// paused measures how long the machine pauses, which makes everything late. The returned
// function ends that and returns the longest time that a reply from Redis took.
func (s *scene) paused() (end func() time.Duration) {
	const pause = 5 * time.Millisecond
	client := s.dial()
	done, longest := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for last := time.Now(); ; last = time.Now() {
			_ = client.Ping(context.Background()).Err() // only how long it takes matters
			select {
			case <-time.After(pause):
			case <-done:
				longest <- max(most, time.Since(last)-pause) // it may have paused just now
				return
			}
			most = max(most, time.Since(last)-pause)
		}
	}()
	return sync.OnceValue(func() time.Duration {
		close(done)
		return <-longest
	})
}
