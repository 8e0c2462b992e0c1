package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// queryEvery is how long a publisher relies on the number of partitions that it
	// has seen before it checks again. A check also restores a number that Redis has lost.
	queryEvery = 5 * time.Second

	// maxTopics is how many topics a generation has. Two generations are remembered.
	// More would save nothing: they cannot all be checked within queryEvery.
	maxTopics = 1 << 14
)

// topics knows how many partitions topics have. It is safe for concurrent use.
type topics struct {
	// immutable
	open          func(name string) Topic
	minPartitions int // the minimum for each topic
	background    *background
	observer      observe.Observer
	outages       *outage.State

	mu         sync.Mutex
	young, old map[string]*knownTopic // guarded by mu; old is forgotten next
}

type knownTopic struct {
	Topic
	name string

	mu         sync.Mutex
	partitions int       // guarded by mu; 0: not known yet
	seenAt     time.Time // guarded by mu; when Redis was last asked
	current    *query    // guarded by mu; the query under way
}

// query is a call that asks Redis, shared by all callers that wait for it.
type query struct {
	done chan struct{} // closed when the fields below are set
	err  error
	left bool // its caller's context has ended before Redis was asked, so err is of no use to other callers
}

func newTopics(config Config, b *background, outages *outage.State) *topics {
	return &topics{
		open: config.Open, minPartitions: config.Partitions, background: b, observer: config.Observer, outages: outages,
		young: map[string]*knownTopic{},
	}
}

// partitions returns how many partitions a topic has, and raises the number if it is too low.
// It returns a known number at once, because the number never decreases and the master of
// partition 0 may hang while others work. If no number is known, it tries until ctx ends or the
// deadline passes, as long as the error is temporary.
func (t *topics) partitions(ctx context.Context, deadline time.Time, name string) (int, error) {
	topic := t.find(name)
	if partitions, fresh := topic.seen(); partitions > 0 {
		if !fresh {
			t.refresh(topic)
		}
		return partitions, nil
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	pause := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	var last error
	for {
		err := t.query(ctx, topic)
		// An error matters only as long as no number is known.
		if partitions, _ := topic.seen(); partitions > 0 && (err == nil || ctx.Err() == nil) {
			return partitions, nil
		}
		if errors.Is(err, ErrClosed) || t.background.closing.Err() != nil { // the query was not made, or was cancelled
			return 0, ErrClosed
		}
		if ctx.Err() == nil && !script.Transient(err) {
			return 0, err
		}
		if ctx.Err() == nil {
			last = err
			t.outages.Failed(observe.Publishing, topic.whole().place(), err)
		}
		if !pause.Wait(ctx) {
			if last == nil {
				last = topic.WhyNoAnswer()
			}
			return 0, fmt.Errorf("%w: %w", script.EndOf(ctx), last)
		}
	}
}

// refresh starts a query, unless one is under way or has just ended, and does not wait for
// it. If too many calls run in the background, a later Publish starts it.
func (t *topics) refresh(topic *knownTopic) {
	topic.mu.Lock()
	defer topic.mu.Unlock()
	if topic.current != nil || topic.recent() {
		return
	}
	next := &query{done: make(chan struct{})}
	if t.background.try(func(ctx context.Context) { t.runQuery(ctx, topic, next) }) {
		topic.current = next
	}
}

// query waits until Redis has been asked, by this caller or another.
func (t *topics) query(ctx context.Context, topic *knownTopic) error {
	for {
		current, first := topic.join()
		if first {
			if err := t.background.start(ctx, func(ctx context.Context) { t.runQuery(ctx, topic, current) }); err != nil {
				current.left = ctx.Err() != nil
				topic.answered(current, 0, err)
			}
		}
		select {
		case <-current.done:
			if first || !current.left {
				return current.err
			}
		case <-ctx.Done():
			return script.EndOf(ctx)
		}
	}
}

// runQuery carries out a query.
func (t *topics) runQuery(ctx context.Context, topic *knownTopic, current *query) {
	partitions, err := t.raise(ctx, topic)
	topic.answered(current, partitions, err)
	if err == nil {
		t.outages.Worked(observe.Publishing, topic.whole().place())
		t.endExpired(ctx, topic) // no caller waits for it
	}
}

// endExpired ends consumer groups that have no live subscriber any more, after a check of
// their topic.
func (t *topics) endExpired(ctx context.Context, topic *knownTopic) {
	ended, err := topic.EndExpired(ctx)
	place := topic.whole().place()
	if report := t.observer.GroupExpired; report != nil {
		for _, g := range ended {
			report(observe.GroupExpired{Place: observe.Place{Topic: place.Topic, Group: g.Group, Partition: place.Partition}, Freed: g.Freed})
		}
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		t.outages.Failed(observe.ExpiringGroups, place, err)
	default:
		t.outages.Worked(observe.ExpiringGroups, place)
	}
}

// find returns a topic and remembers it for at least another generation. Each topic costs
// the same, however many there are.
func (t *topics) find(name string) *knownTopic {
	t.mu.Lock()
	defer t.mu.Unlock()
	topic := t.young[name]
	if topic != nil {
		return topic
	}
	if topic = t.old[name]; topic == nil {
		topic = &knownTopic{Topic: t.open(name), name: name}
	}
	if len(t.young) >= maxTopics {
		t.young, t.old = make(map[string]*knownTopic, maxTopics), t.young
	}
	t.young[name] = topic
	return topic
}

// seen returns the number of partitions, and whether it is recent; 0 if none is known.
func (k *knownTopic) seen() (partitions int, fresh bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.partitions, k.partitions > 0 && k.recent()
}

// recent reports whether Redis was asked just now. The lock is held.
func (k *knownTopic) recent() bool { return time.Since(k.seenAt) < queryEvery }

// join returns the query under way, or a new one, which the caller must start.
func (k *knownTopic) join() (current *query, first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		k.current, first = &query{done: make(chan struct{})}, true
	}
	return k.current, first
}

// answered ends a query.
func (k *knownTopic) answered(current *query, partitions int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.partitions = partitions
	}
	k.seenAt, k.current = time.Now(), nil
	current.err = err
	close(current.done)
}

// raise lists the topic, and raises its number of partitions.
func (t *topics) raise(ctx context.Context, topic *knownTopic) (partitions int, err error) {
	if err := topic.EnsureListed(ctx); err != nil {
		return 0, err
	}
	return topic.RaisePartitions(ctx, t.minPartitions)
}

// whole is the destination of calls for the topic as a whole.
func (k *knownTopic) whole() destination { return destination{topic: k.name, partition: wholeTopic} }
