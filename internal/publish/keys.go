package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Cancel cancels the message that a key leads to, and returns its status before. The error
// is queue.ErrNotFound if there is none. With ErrOutcomeUnknown, the message may be cancelled;
// with any other error, it is not.
func (p *Publisher) Cancel(ctx context.Context, topic, key string) (queue.Status, error) {
	return p.change(ctx, observe.Changed{Topic: topic, Key: key, Change: observe.Cancelled},
		func(ctx context.Context, t Topic) (queue.Status, error) { return t.Cancel(ctx, key) })
}

// Reschedule makes the waiting message that a key leads to due after a delay, and returns
// its status before. The error is queue.ErrNotFound if there is none. With ErrOutcomeUnknown, the
// message may be rescheduled; with any other error, it is not.
func (p *Publisher) Reschedule(ctx context.Context, topic, key string, delay time.Duration) (queue.Status, error) {
	return p.change(ctx, observe.Changed{Topic: topic, Key: key, Change: observe.Rescheduled},
		func(ctx context.Context, t Topic) (queue.Status, error) { return t.Reschedule(ctx, key, delay) })
}

// change makes a call for a key, once: a failed attempt may have succeeded in Redis. It
// creates no partitions, since the topic may not exist.
func (p *Publisher) change(
	ctx context.Context, event observe.Changed, call func(context.Context, Topic) (queue.Status, error),
) (queue.Status, error) {
	if err := p.lanes.begin(); err != nil {
		return queue.Status{}, err
	}
	t := p.topics.find(event.Topic)
	p.lanes.records.add(t.whole(), "", false) // the topic knows which calls may be repeated
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.background.closing, cancel)() //nolint:contextcheck // ctx or Close, whichever is first
	status, err := call(ctx, t)
	p.lanes.end() // before the observer, as in Publish
	if err != nil {
		err = fmt.Errorf("redisdelay: %s %q in %q: %w", event.Change, event.Key, event.Topic, err)
	}
	if p.observer.Changed != nil {
		event.ID, event.Err = status.ID, err
		p.observer.Changed(event)
	}
	return status, err
}
