package whole

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// consumer is a Subscriber with one subscription, whose handler takes no time.
type consumer struct {
	name, group string
	process     *process
	subscriber  *redisdelay.Subscriber
	since       time.Time     // when Subscribe returned
	died        chan struct{} // closed when its process dies
	cancel      context.CancelFunc
	read        chan struct{} // closed when the channel of messages is
}

// subscribe starts a consumer; nil if that fails.
func (w *world) subscribe(name, group string, p *process) *consumer {
	s, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: p.client, ConsumerGroup: group, LeaseDuration: leaseDuration, CloseTimeout: closeTimeout,
		MaxInFlight: 10, MaxDeliveries: maxDeliveries,
	}, nil)
	if err != nil {
		w.fail("call", "NewSubscriber: %v", err)
		return nil
	}
	c := &consumer{
		name: name, group: group, process: p, subscriber: s,
		died: make(chan struct{}), read: make(chan struct{}),
	}
	if group == redisdelay.Broadcast { // a group of its own
		c.group = name
	}
	var messages <-chan *message.Message
	err = w.call(p, "Subscribe", w.patience(), func(ctx context.Context) (err error) {
		lasts, cancel := context.WithCancel(context.WithoutCancel(ctx))
		c.cancel = cancel
		defer context.AfterFunc(ctx, cancel)() // only while Subscribe is at work
		messages, err = s.Subscribe(lasts, topic)
		return err
	}, redisdelay.ErrGroupRetired)
	if err != nil {
		c.cancel()
		w.closeConsumer(c)
		return nil
	}
	c.since = time.Now()
	w.keepers.Go(func() { w.handle(c, messages) })
	return c
}

// initialize registers a group, as a program does before it starts. Close ends that.
func (w *world) initialize(p *process) {
	s, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: p.client, ConsumerGroup: redisdelay.Broadcast, CloseTimeout: closeTimeout,
	}, nil)
	if err != nil {
		w.fail("call", "NewSubscriber: %v", err)
		return
	}
	closed := make(chan struct{}) // two calls of Close at once wait in a sync.Once, which stops virtual time
	closing := func() { _ = s.Close(); close(closed) }
	_ = w.call(p, "SubscribeInitialize", w.patience(), func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, closing)
		err := s.SubscribeInitialize(topic)
		if stop() {
			go closing()
		}
		return err
	})
	_ = w.call(p, "Subscriber.Close", closeTimeout+w.patience(), func(context.Context) error { <-closed; return nil })
}

func (w *world) handle(c *consumer, messages <-chan *message.Message) {
	defer close(c.read)
	for msg := range messages {
		switch {
		case c.process.gone(): // so nobody sees it
			msg.Nack()
		case w.handled(c, msg):
			msg.Ack()
		default:
			msg.Nack()
		}
	}
}

// closeConsumer ends a consumer. Close ends its own group, too, if it has one.
func (w *world) closeConsumer(c *consumer) {
	c.cancel()
	_ = w.call(c.process, "Subscriber.Close of "+c.group, closeTimeout+w.patience(), func(context.Context) error { return c.subscriber.Close() })
}

// keep keeps a steady consumer of a group running: it replaces one whose process has died.
func (w *world) keep(name, group string) {
	r := w.rng(name)
	for n := 1; ; n++ {
		p := w.process(fmt.Sprintf("%s, run %d", name, n))
		c := w.subscribe(p.name, group, p)
		if c == nil {
			if !sleeping(between(r, 0, time.Second), w.closing) {
				return
			}
			continue
		}
		w.enter(c)
		select {
		case <-c.died:
			w.trouble(group, leaseDuration+pollInterval+w.plan.Faults.Recovery)
		case <-w.closing:
		}
		w.leave(c)
		w.closeConsumer(c)
		if !sleeping(between(r, 0, time.Second), w.closing) {
			return
		}
	}
}

func (w *world) enter(c *consumer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = append(w.live, c)
}

func (w *world) leave(c *consumer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.live {
		if other == c {
			w.live = append(w.live[:i:i], w.live[i+1:]...)
			return
		}
	}
}

// steady is one of the steady consumers; nil if there is none.
func (w *world) steady(draw func(n int) int) *consumer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.live) == 0 {
		return nil
	}
	return w.live[draw(len(w.live))]
}

// visitors lets Broadcast subscribers come and go. Most share a client, as those of one program do.
func (w *world) visitors() {
	plan, r := w.plan.Visitors, w.rng("comers")
	if plan.PerSecond == 0 {
		return
	}
	shared := w.process("comers")
	gap := time.Duration(float64(time.Second) / plan.PerSecond)
	for n := 1; w.rest(between(r, 0, 2*gap)); n++ {
		name, life, dies := fmt.Sprintf("comer %d", n), between(r, 100*time.Millisecond, plan.MostLife), r.Float64() < plan.Dying
		p := shared
		if dies {
			p = w.process(name)
		}
		w.actors.Go(func() { w.visitor(name, p, life, dies) })
	}
}

func (w *world) visitor(name string, p *process, life time.Duration, dies bool) {
	w.initialize(p)
	c := w.subscribe(name, redisdelay.Broadcast, p)
	if c == nil {
		return
	}
	wait(life)
	w.missing(c.group, c.since, time.Now().Add(-w.plan.MaxLate))
	if dies {
		p.die()
	}
	w.closeConsumer(c)
	w.ledger.mu.Lock()
	w.stats.Visitors++
	w.ledger.mu.Unlock()
}
