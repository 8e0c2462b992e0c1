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

	// maxTopics is how many topics a generation has. Twice as many are remembered: more
	// than can be looked at within lookEvery, so that to remember others saves nothing.
	maxTopics = 1 << 14
)

// Topics knows how many partitions topics have. It is safe for concurrent use.
type Topics struct {
	// immutable
	open   func(name string) *queue.Topic
	least  int // what each topic's number is raised to
	calls  *Calls
	outage *Outage

	mu         sync.Mutex
	young, old map[string]*knownTopic // guarded by mu; old ones are forgotten next
}

type knownTopic struct {
	*queue.Topic
	name string

	mu         sync.Mutex
	partitions int       // guarded by mu; 0: not known yet
	seenAt     time.Time // guarded by mu; when Redis was asked
	looking    *look     // guarded by mu; the one under way
}

// look is a call that asks Redis, shared by all who wait for it.
type look struct {
	done chan struct{} // closed when err is set
	err  error
}

// NewTopics returns Topics with least partitions each.
func NewTopics(open func(name string) *queue.Topic, least int, calls *Calls, outage *Outage) *Topics {
	return &Topics{open: open, least: least, calls: calls, outage: outage, young: map[string]*knownTopic{}}
}

// Topic returns a topic.
func (t *Topics) Topic(name string) *queue.Topic { return t.find(name).Topic }

// Partitions returns how many partitions a topic has, raising the number if it is
// too low. It tries until ctx ends or the deadline has come, while the error may pass.
func (t *Topics) Partitions(ctx context.Context, deadline time.Time, name string) (int, error) {
	topic := t.find(name)
	if partitions, fresh := topic.seen(); fresh {
		return partitions, nil
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	pause := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	var last error
	for {
		err := t.look(ctx, topic)
		// An error matters only as long as no number is known.
		if partitions, _ := topic.seen(); partitions > 0 && (err == nil || ctx.Err() == nil) {
			return partitions, nil
		}
		if ctx.Err() == nil && !queue.Transient(err) {
			return 0, err
		}
		if ctx.Err() == nil {
			last = err
			t.outage.Failed(topic.destination(), err)
		}
		if !pause.Wait(ctx) {
			if last == nil {
				last = topic.Silence()
			}
			return 0, fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}

// look waits until Redis has been asked, by this caller or another. When a number is
// known, it does not wait for others.
func (t *Topics) look(ctx context.Context, topic *knownTopic) error {
	topic.mu.Lock()
	current, known := topic.looking, topic.partitions > 0
	if current == nil {
		current = &look{done: make(chan struct{})}
		topic.looking = current
		topic.mu.Unlock()
		if err := t.calls.Go(ctx, func(ctx context.Context) { t.ask(ctx, topic, current) }); err != nil {
			topic.looked(current, 0, err)
		}
	} else {
		topic.mu.Unlock()
		if known {
			return nil // the number never sinks
		}
	}
	select {
	case <-current.done:
		return current.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *Topics) ask(ctx context.Context, topic *knownTopic, current *look) {
	partitions, err := 0, topic.Enlist(ctx)
	if err == nil {
		partitions, err = topic.Raise(ctx, t.least)
	}
	if err == nil {
		t.outage.Worked(topic.destination())
	}
	topic.looked(current, partitions, err)
}

// find returns a topic. What is found stays for at least another generation; so each
// topic costs the same, however many there are.
func (t *Topics) find(name string) *knownTopic {
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

// seen returns the number of partitions, and whether it is recent.
func (t *knownTopic) seen() (partitions int, fresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.partitions, t.partitions > 0 && time.Since(t.seenAt) < lookEvery
}

// looked ends a look.
func (t *knownTopic) looked(current *look, partitions int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.partitions = partitions
	}
	t.seenAt, t.looking = time.Now(), nil
	current.err = err
	close(current.done)
}

// destination stands for all that is done with a topic as a whole: that is kept in its
// first partition.
func (t *knownTopic) destination() Destination { return Destination{Topic: t.name} }
