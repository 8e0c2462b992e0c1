package publish

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

const (
	// lookEvery is how long a publisher relies on the number of partitions that it
	// has seen. Looking also restores a number that Redis has lost.
	lookEvery = 5 * time.Second

	// maxTopics is how many topics are remembered before those that have fallen
	// silent are forgotten.
	maxTopics = 1000
)

// Topics knows how many partitions topics have. It is safe for concurrent use.
type Topics struct {
	// immutable
	open  func(name string) *queue.Topic
	least int // what each topic's number is raised to

	mu    sync.Mutex
	known map[string]*knownTopic // guarded by mu
}

type knownTopic struct {
	*queue.Topic
	looking chan struct{} // holds a value while somebody looks

	mu         sync.Mutex
	partitions int       // guarded by mu; 0: not known yet
	looked     time.Time // guarded by mu
}

// NewTopics returns Topics with least partitions each.
func NewTopics(open func(name string) *queue.Topic, least int) *Topics {
	return &Topics{open: open, least: least, known: map[string]*knownTopic{}}
}

// Topic returns a topic.
func (t *Topics) Topic(name string) *queue.Topic { return t.find(name).Topic }

// Partitions returns how many partitions a topic has, raising the number if it is
// too low. It tries until ctx ends or the deadline has come, while the error may pass.
func (t *Topics) Partitions(ctx context.Context, deadline time.Time, name string) (int, error) {
	topic := t.find(name)
	partitions, fresh := topic.seen()
	if fresh || partitions > 0 && len(topic.looking) > 0 { // somebody looks, and it never sinks
		return partitions, nil
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	select {
	case topic.looking <- struct{}{}:
		defer func() { <-topic.looking }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if partitions, fresh = topic.seen(); fresh {
		return partitions, nil
	}
	return topic.look(ctx, t.least)
}

func (t *Topics) find(name string) *knownTopic {
	t.mu.Lock()
	defer t.mu.Unlock()
	topic := t.known[name]
	if topic == nil {
		if len(t.known) >= maxTopics {
			t.forget()
		}
		topic = &knownTopic{Topic: t.open(name), looking: make(chan struct{}, 1)}
		t.known[name] = topic
	}
	return topic
}

// forget drops topics that would be looked up again anyway. The caller holds mu.
func (t *Topics) forget() {
	for name, topic := range t.known {
		if _, fresh := topic.seen(); !fresh {
			delete(t.known, name)
		}
	}
}

// seen returns the number of partitions, and whether it is recent.
func (t *knownTopic) seen() (partitions int, fresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.partitions, t.partitions > 0 && time.Since(t.looked) < lookEvery
}

// look asks Redis. An error matters only as long as no number is known.
func (t *knownTopic) look(ctx context.Context, least int) (int, error) {
	pause := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	for {
		partitions, err := t.Raise(ctx, least)
		t.mu.Lock()
		if err == nil {
			t.partitions = partitions
		}
		partitions = t.partitions
		t.looked = time.Now()
		t.mu.Unlock()
		if partitions > 0 {
			return partitions, nil
		}
		if !queue.Transient(err) || !pause.Wait(ctx) {
			return 0, fmt.Errorf("look for the partitions of the topic: %w", err)
		}
	}
}
