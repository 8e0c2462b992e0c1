package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// ordered is redisdelay with ordering keys.
const ordered = ours + ", ordering keys"

// inOrder gives messages ordering keys that begin with a name, so many in turn.
func inOrder(list []*message.Message, name string, keys int) []*message.Message {
	for i, msg := range list {
		redisdelay.SetOrderingKey(msg, fmt.Sprint(name, i%keys))
	}
	return list
}

func drainOrdered() experiment {
	return experiment{
		name: "order10",
		what: "A due backlog of 100,000 messages and ten subscriptions of one group: without ordering keys, and with\n" +
			"10,000 keys of ten messages each.",
		contestants: []contestant{{ours, orderedRun(0, backlog)}, {ordered, orderedRun(10_000, backlog)}},
		bars: []bar{
			{reading: rate, of: ordered, against: []string{ours}, least: 0.4},
			{reading: slowestInside, of: ordered, most: 10},
		},
	}
}

func drainOneKey() experiment {
	return experiment{
		name: "order1",
		what: "10,000 due messages of one ordering key and ten subscriptions of one group: one message at a time is in\n" +
			"delivery.",
		contestants: []contestant{{ordered, orderedRun(1, 10_000)}},
		bars: []bar{
			{reading: rate, of: ordered, least: 500},
			{reading: slowestInside, of: ordered, most: 10},
		},
	}
}

// orderedRun drains a backlog with so many ordering keys; 0 for none.
func orderedRun(keys, messages int) func(ctx context.Context, l *lab) (sample, error) {
	return func(ctx context.Context, l *lab) (sample, error) {
		n := l.count(messages)
		list := newMessages(n)
		if keys > 0 {
			inOrder(list, "key ", keys)
		}
		p := redisDelay()
		if err := errors.Join(p.fill(ctx, l, list), l.admin.Do(ctx, "SLOWLOG", "RESET").Err()); err != nil {
			return nil, err
		}
		s, err := drainBacklog(ctx, l, p, 10, newTally(n))
		if err != nil {
			return nil, err
		}
		return l.withSlowest(ctx, s)
	}
}

// withSlowest adds how long the slowest script took.
func (l *lab) withSlowest(ctx context.Context, s sample) (sample, error) {
	logged, err := l.admin.SlowLogGet(ctx, -1).Result()
	longest := time.Duration(0)
	for _, call := range logged {
		if len(call.Args) > 0 && call.Args[0] != "slowlog" {
			longest = max(longest, call.Duration)
		}
	}
	return append(s, reading{slowestInside, "ms", float64(longest.Microseconds()) / 1000}), err
}

// coldKeys measures whether a key with many due messages holds up others.
func coldKeys() experiment {
	const beside = ours + ", beside a key with 100,000 due messages"
	return experiment{
		name: "order-cold",
		what: "10,000 messages with ordering keys of their own, due at random times within 20 s, and one subscription with\n" +
			"MaxInFlight 10: how late they are, without and beside a key that has 100,000 due messages, the first of which\n" +
			"is in delivery all the time.",
		rounds:      3,
		contestants: []contestant{{ours, coldRun(0)}, {beside, coldRun(100_000)}},
		bars: []bar{
			{reading: p99, of: beside, against: []string{ours}, most: 1.5},
			{reading: slowestInside, of: beside, most: 10},
		},
	}
}

func coldRun(hot int) func(ctx context.Context, l *lab) (sample, error) {
	return func(ctx context.Context, l *lab) (sample, error) {
		n := l.count(10_000)
		d := &delays{tally: newTally(n), earliest: make([]time.Time, n)}
		if hot > 0 {
			list := inOrder(newMessages(n + l.count(hot))[n:], "hot ", 1) // these numbers are not in the tally
			if err := publishAll(ctx, l, topic, list); err != nil {
				return nil, err
			}
		}
		subscriber, err := newSubscriber(l, group, inFlight)
		if err != nil {
			return nil, err
		}
		var c crowd
		measured := make(chan struct{})
		if err := c.join(ctx, subscriber, topic, func(msg *message.Message) { d.receiveCold(msg, measured) }); err != nil { //nolint:contextcheck // it needs none
			return nil, err
		}
		if err := errors.Join(pause(ctx, 2*time.Second), l.admin.Do(ctx, "SLOWLOG", "RESET").Err()); err != nil {
			return nil, err
		}
		used, err := l.measure(ctx, func() error {
			cold := d.messages(2*time.Second, l.duration(20*time.Second))
			if err := publishAll(ctx, l, topic, inOrder(cold, "cold ", n)); err != nil {
				return err
			}
			return d.tally.wait(ctx)
		})
		close(measured)
		if err := errors.Join(err, c.leave(), d.tally.check(), d.err); err != nil {
			return nil, err
		}
		return l.withSlowest(ctx, append(d.sample(), used.per(n, d.tally)[1:]...))
	}
}

// receiveCold receives a message of the tally, and holds others until the end.
func (d *delays) receiveCold(msg *message.Message, measured <-chan struct{}) {
	if binary.BigEndian.Uint64(msg.Payload) < uint64(len(d.earliest)) {
		d.receive(msg)
		return
	}
	go func() { // ends with the measurement
		<-measured
		msg.Ack()
	}()
}
