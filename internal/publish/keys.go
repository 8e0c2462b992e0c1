package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Cancel takes back the message that holds a key. The error is queue.ErrNotFound when
// none does. After any other, the message may have been taken back.
func (p *Publisher) Cancel(ctx context.Context, topic, key string) error {
	return p.change(ctx, observe.Changed{Topic: topic, Key: key, How: observe.Cancelled},
		func(ctx context.Context, t Topic) error { return t.Cancel(ctx, key) })
}

// Reschedule makes the waiting message that holds a key due after a delay. The error is
// queue.ErrNotFound when there is none. After any other, the message may have been moved.
func (p *Publisher) Reschedule(ctx context.Context, topic, key string, delay time.Duration) error {
	return p.change(ctx, observe.Changed{Topic: topic, Key: key, How: observe.Rescheduled},
		func(ctx context.Context, t Topic) error { return t.Reschedule(ctx, key, delay) })
}

// change makes a call for a key, once: a failed attempt may have succeeded in Redis. It
// creates no partitions, since the topic may not exist.
func (p *Publisher) change(ctx context.Context, told observe.Changed, call func(context.Context, Topic) error) error {
	if p.closed.Load() {
		return ErrClosed
	}
	t := p.topics.find(told.Topic)
	err := p.background.do(ctx, func(ctx context.Context) error { return call(ctx, t) })
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w: %w", err, t.Silence())
	}
	if err != nil {
		err = fmt.Errorf("redisdelay: %s %q in %q: %w", told.How, told.Key, told.Topic, err)
	}
	if p.observer.Changed != nil {
		told.Err = err
		p.observer.Changed(told)
	}
	return err
}
