package whole

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const publishTimeout = 10 * time.Second // the default

// publish publishes until the end, with one Publisher or with one for each call.
func (w *world) publish(name string, plan PublisherPlan) {
	process, r := w.process(name), w.rng(name)
	var shared *redisdelay.Publisher
	if !plan.EachItsOwn {
		shared = w.publisher(process, plan)
		defer w.closePublisher(process, shared)
	}
	var later sync.WaitGroup
	defer later.Wait()
	for n := 1; w.rest(between(r, 0, 2*plan.Gap)); n++ {
		e := &entry{uuid: fmt.Sprintf("%s, message %d", name, n), fails: r.Float64() < plan.Failing}
		if r.Float64() < plan.Keyed {
			e.key = "key of " + e.uuid
		}
		if plan.Ordered > 0 {
			e.ordering = fmt.Sprintf("order %d", r.IntN(plan.Ordered))
		}
		after := between(r, 10*time.Millisecond, plan.MostDelay)
		if r.Float64() < plan.Immediate {
			after = 0
		}
		changed, at := r.Float64() < plan.Changes, between(r, 0, plan.MostDelay)
		p := shared
		if plan.EachItsOwn {
			p = w.publisher(process, plan)
		}
		put := func(how call) {
			w.put(process, p, e, after, plan, how)
			if e.key != "" && changed {
				own := rngOf(w.seed, "change of "+e.uuid)
				later.Go(func() {
					if w.rest(at) {
						w.change(process, p, e, own)
					}
				})
			}
		}
		if rngOf(w.seed, "call of "+e.uuid).Float64() < plan.Async {
			later.Go(func() { put(publishAsync) })
		} else {
			put((*redisdelay.Publisher).Publish)
		}
		if plan.EachItsOwn {
			w.closePublisher(process, p)
		}
	}
}

// A call publishes, and returns the outcome.
type call func(p *redisdelay.Publisher, topic string, messages ...*message.Message) error

func publishAsync(p *redisdelay.Publisher, topic string, messages ...*message.Message) error {
	future := p.PublishAsync(topic, messages...)
	<-future.Done() // it has to end by itself
	return future.Err()
}

func (w *world) publisher(process *process, plan PublisherPlan) *redisdelay.Publisher {
	p, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client: process.client, DeduplicationWindow: plan.Window, Partitions: w.plan.Partitions, PublishTimeout: plan.Limit,
	}, nil)
	if err != nil {
		w.fail("call", "NewPublisher: %v", err)
	}
	return p
}

func (w *world) closePublisher(process *process, p *redisdelay.Publisher) {
	_ = w.call(process, "Publisher.Close", publishTimeout, func(context.Context) error { return p.Close() })
}

// put publishes one message.
func (w *world) put(process *process, p *redisdelay.Publisher, e *entry, after time.Duration, plan PublisherPlan, publish call) {
	msg := message.NewMessage(e.uuid, []byte("{}"))
	if e.key != "" {
		redisdelay.SetKey(msg, e.key)
	}
	if e.ordering != "" {
		redisdelay.SetOrderingKey(msg, e.ordering)
	}
	w.publishing(e, after)
	if after > 0 {
		delay.Message(msg, delay.For(after))
	}
	limit := cmp.Or(plan.Timeout, plan.Limit, publishTimeout)
	err := w.call(process, "Publish", limit, func(ctx context.Context) error {
		if plan.Timeout > 0 {
			msg.SetContext(ctx)
		}
		return publish(p, topic, msg)
	})
	switch {
	case err == nil:
		w.published(e, after, stored)
	case errors.Is(err, redisdelay.ErrOutcomeUnknown):
		w.published(e, after, unknown)
	default:
		w.published(e, after, notStored)
	}
}

// change cancels or reschedules a message, which may be delivered already.
func (w *world) change(process *process, p *redisdelay.Publisher, e *entry, r *rand.Rand) {
	const limit = 3 * time.Second
	var status redisdelay.Status
	cancels, to := r.Float64() < 0.5, between(r, 0, 4*time.Second)
	called := time.Now()
	rescheduled := called.Add(to).Truncate(time.Millisecond)
	var err error
	if !cancels { // it may be delivered before the answer comes
		w.ledger.change(e, func(e *entry) { e.earliest = minTime(e.earliest, rescheduled) })
	}
	if cancels {
		err = w.call(process, "Cancel", limit, func(ctx context.Context) (err error) {
			status, err = p.Cancel(ctx, topic, e.key)
			return err
		}, redisdelay.ErrMessageNotFound, redisdelay.ErrMessageDead)
	} else {
		err = w.call(process, "Reschedule", limit, func(ctx context.Context) (err error) {
			status, err = p.Reschedule(ctx, topic, e.key, delay.For(to))
			return err
		}, redisdelay.ErrMessageNotFound, redisdelay.ErrMessageDead)
	}
	w.ledger.change(e, func(e *entry) {
		switch {
		case errors.Is(err, redisdelay.ErrMessageNotFound), errors.Is(err, redisdelay.ErrMessageDead):
		case err != nil: // it may have been carried out, or may still be
			e.uncertain = true
		case cancels && status.Scheduled:
			e.cancelled = time.Now()
		case cancels:
			e.uncertain = true
		default:
			e.latest = time.Now().Add(max(to, e.latest.Sub(called)))
			if status.Scheduled {
				e.earliest = rescheduled
			}
		}
	})
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
