package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const p99 = "p99"

func lateness() experiment {
	const beside = ours + " with 50 more consumers"
	return experiment{
		name: "lateness",
		what: "2,000 messages are due at random times within 10 s. Lateness is the time from the due time until the handler receives the\n" +
			"message, by the clock that Redis and the handler share. All consumers are of one group. An early message fails the run.",
		rounds: 3,
		contestants: []contestant{
			{ours, latenessRun(1)}, {beside, latenessRun(51)},
		},
		bars: []bar{
			{reading: p99, of: ours, most: 3},
			{reading: p99, of: beside, most: 15},
		},
	}
}

func latenessRun(consumers int) func(ctx context.Context, l *lab) (sample, error) {
	return func(ctx context.Context, l *lab) (sample, error) {
		n := l.count(2_000)
		d := &delays{tally: newTally(n), earliest: make([]time.Time, n)}
		subscriber, err := newSubscriber(l, group, 0)
		if err != nil {
			return nil, err
		}
		var c crowd
		for range consumers {
			if err := c.join(ctx, subscriber, topic, d.receive); err != nil {
				return nil, err
			}
		}
		if err := pause(ctx, time.Second); err != nil { // until all consumers are idle
			return nil, err
		}
		used, err := l.measure(ctx, func() error {
			if err := publishAll(ctx, l, topic, d.messages(time.Second, l.duration(10*time.Second))); err != nil {
				return err
			}
			return d.tally.wait(ctx)
		})
		if err := errors.Join(err, c.leave(), d.tally.check(), d.err); err != nil {
			return nil, err
		}
		return append(d.sample(), used.per(n, d.tally)[1:]...), nil
	}
}

// delays records how late messages are.
type delays struct {
	tally    *tally
	earliest []time.Time // immutable once published; by the clock of the publisher

	mu   sync.Mutex
	late []time.Duration // guarded by mu
	err  error           // guarded by mu; of a message that was early
}

// messages makes all messages, due between from and from+within.
func (d *delays) messages(from, within time.Duration) []*message.Message {
	list := newMessages(len(d.earliest))
	for i, msg := range list {
		by := from + rand.N(within)
		d.earliest[i] = time.Now().Add(by)
		delay.Message(msg, delay.For(by))
	}
	return list
}

func (d *delays) receive(msg *message.Message) {
	now := time.Now()
	number := d.tally.add(msg.Payload)
	delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
	msg.Ack()
	d.mu.Lock()
	defer d.mu.Unlock()
	late := now.Sub(delivery.DueAt)
	d.late = append(d.late, late)
	if number >= 0 && (late < 0 || now.Before(d.earliest[number])) {
		d.err = fmt.Errorf("message %d came early: %v after its due time, %v after its delay",
			number, late, now.Sub(d.earliest[number]))
	}
}

// sample returns the readings; call it when all messages have arrived.
func (d *delays) sample() sample {
	return sample{
		{"p50", "ms", quantile(d.late, 0.5)}, {p99, "ms", quantile(d.late, 0.99)}, {"max", "ms", quantile(d.late, 1)},
	}
}

// quantile returns a quantile of times, in ms; 0 for an empty list. It sorts the list.
func quantile(list []time.Duration, part float64) float64 {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return milli(list[int(part*float64(len(list)-1))])
}
