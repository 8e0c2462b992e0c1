package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
)

const (
	slowestScript = "slowest script of admin"
	addedLateness = "p99 more than without"

	// commandStart is how long the command line takes to start at least.
	commandStart = 20 * time.Millisecond

	operatorName = "operator" // of the client, in Redis's slow log
)

func operate() experiment {
	return experiment{
		name: "operate",
		what: "1,000,000 messages scheduled 24 h ahead and 10,000 dead letters in one topic, and 5,000 messages a second\n" +
			"that are published and handled in it: how late they are, in turns with nothing else and while package\n" +
			"admin lists, counts, searches, changes, copies and exports messages, one call after the other, with 20 ms\n" +
			"between them, in which the command line would start; and how long its slowest script takes. At last it lists all that is scheduled, page by page: the run fails unless it shows\n" +
			"each message exactly once.",
		rounds:      1,
		contestants: []contestant{{ours, operateRun}},
		bars: []bar{
			{reading: slowestScript, of: ours, most: 10},
			{reading: addedLateness, of: ours, most: 2},
		},
	}
}

func operateRun(ctx context.Context, l *lab) (sample, error) {
	scheduled, dead := l.count(1_000_000), l.count(10_000)
	for left := scheduled; left > 0; left -= min(left, 100_000) {
		if err := publishAll(ctx, l, topic, delayed(newMessages(min(left, 100_000)), 24*time.Hour)); err != nil {
			return nil, err
		}
	}
	if err := makeDead(ctx, l, dead); err != nil {
		return nil, err
	}
	o, err := newOperator(ctx, l)
	if err != nil {
		return nil, err
	}
	var without, with []float64
	for range 3 {
		quiet, err := o.watch(ctx, l, func(context.Context) error { return nil })
		if err != nil {
			return nil, err
		}
		busy, err := o.watch(ctx, l, o.work)
		if err != nil {
			return nil, err
		}
		without, with = append(without, quiet.get(p99)), append(with, busy.get(p99))
	}
	if _, err := o.watch(ctx, l, func(context.Context) error { return o.listAll(ctx, scheduled) }); err != nil {
		return nil, err
	}
	slowest, err := o.slowest(ctx, l)
	return sample{
		{slowestScript, "ms", slowest},
		{"p99 without", "ms", spreadOf(without).median},
		{"p99 with", "ms", spreadOf(with).median},
		{addedLateness, "ms", spreadOf(with).median - spreadOf(without).median},
		{"calls of admin", "", float64(o.calls.Load())},
	}, err
}

// makeDead makes dead letters of the group.
func makeDead(ctx context.Context, l *lab, n int) error {
	if err := publishAll(ctx, l, topic, newMessages(n)); err != nil {
		return err
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: l.common(), ConsumerGroup: group, MaxInFlight: inFlight, MaxDeliveries: 1,
	}, nil)
	if err != nil {
		return err
	}
	t := newTally(n)
	var c crowd
	if err := c.join(ctx, subscriber, topic, func(msg *message.Message) {
		t.add(msg.Payload)
		msg.Nack()
	}); err != nil {
		return err
	}
	return errors.Join(t.wait(ctx), c.leave(), t.check())
}

// operator calls package admin without a pause.
type operator struct {
	admin *admin.Admin
	known []string // ids of scheduled messages
	calls atomic.Int64
}

func newOperator(ctx context.Context, l *lab) (*operator, error) {
	client := redis.NewClient(&redis.Options{Addr: l.server.Addr, ClientName: operatorName, ReadTimeout: 10 * time.Second})
	l.clients = append(l.clients, client)
	a, err := admin.New(admin.Config{Client: client})
	if err != nil {
		return nil, err
	}
	page, err := a.Entries(ctx, topic, admin.Query{Limit: admin.MaxLimit})
	if err != nil {
		return nil, err
	}
	o := &operator{admin: a}
	for _, e := range page.Entries {
		o.known = append(o.known, e.ID)
	}
	return o, errors.Join(
		l.admin.ConfigSet(ctx, "slowlog-log-slower-than", "1000").Err(),
		l.admin.ConfigSet(ctx, "slowlog-max-len", "100000").Err(),
	)
}

// slowest is how long the operator's slowest call took in Redis, in ms.
func (o *operator) slowest(ctx context.Context, l *lab) (float64, error) {
	logged, err := l.admin.SlowLogGet(ctx, -1).Result()
	longest := time.Duration(0)
	for _, call := range logged {
		if call.ClientName != operatorName {
			continue
		}
		if call.Duration > longest {
			longest = call.Duration
		}
		if call.Duration > 5*time.Millisecond {
			fmt.Fprintf(os.Stderr, "slow: %v %.60q\n", call.Duration, call.Args)
		}
	}
	return float64(longest.Microseconds()) / 1000, err
}

// watch measures how late messages are for some seconds, while the operator works. The
// context of work ends with the messages.
func (o *operator) watch(ctx context.Context, l *lab, work func(ctx context.Context) error) (sample, error) {
	const each, every = 25, 5 * time.Millisecond // 5,000 a second
	n := l.count(40_000)
	d := &delays{tally: newTally(n), earliest: make([]time.Time, n)}
	subscriber, err := newSubscriber(l, group, inFlight)
	if err != nil {
		return nil, err
	}
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return nil, err
	}
	var c crowd
	if err := c.join(ctx, subscriber, topic, d.receive); err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- work(working) }() // watch waits for it
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	list := newMessages(n)
	for from := 0; from < n && err == nil; from += each {
		for i := from; i < from+each; i++ {
			by := 50*time.Millisecond + time.Duration(i%100)*time.Millisecond
			d.earliest[i] = time.Now().Add(by)
			delay.Message(list[i], delay.For(by))
		}
		err = publisher.Publish(topic, list[from:from+each]...)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	err = errors.Join(err, d.tally.wait(ctx))
	stop()
	if err := errors.Join(err, <-worked, publisher.Close(), c.leave(), d.tally.check(), d.err); err != nil {
		return nil, err
	}
	return d.sample(), nil
}

// work makes all calls, again and again, until ctx ends.
func (o *operator) work(ctx context.Context) error {
	for turn := 0; ; turn++ {
		for _, call := range o.all(turn) {
			if ctx.Err() != nil {
				return nil
			}
			if err := call.do(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", call.name, err)
			}
			o.calls.Add(1)
			if err := pause(ctx, commandStart); err != nil {
				return nil
			}
		}
	}
}

type operation struct {
	name string
	do   func(ctx context.Context) error
}

// all are the calls of one turn. They change and put back messages that are due tomorrow,
// and copy to another topic.
func (o *operator) all(turn int) []operation {
	a, id := o.admin, o.known[turn%len(o.known)]
	thousand := admin.Selection{IDs: o.known}
	letters := admin.Query{In: admin.Dead, Group: group, Limit: admin.MaxLimit}
	tomorrow := time.Now().Add(23 * time.Hour)
	hour := admin.Query{From: tomorrow.Add(-time.Hour), Before: tomorrow.Add(2 * time.Hour), Limit: admin.MaxLimit}
	return []operation{
		{"topics", func(ctx context.Context) error { return errOf(a.Topics(ctx)) }},
		{"stats", func(ctx context.Context) error { return errOf(a.Stats(ctx, topic)) }},
		{"ls", func(ctx context.Context) error { return errOf(a.Entries(ctx, topic, hour)) }},
		{"ls in the middle", func(ctx context.Context) error { return o.pages(ctx, hour, 20) }},
		{"waiting", func(ctx context.Context) error { return errOf(a.Entries(ctx, topic, admin.Query{In: admin.Waiting})) }},
		{"in delivery", func(ctx context.Context) error {
			return errOf(a.Entries(ctx, topic, admin.Query{In: admin.InDelivery}))
		}},
		{"dead", func(ctx context.Context) error { return o.pages(ctx, letters, 20) }},
		{"count", func(ctx context.Context) error { return errOf(a.Count(ctx, topic, hour)) }},
		{"count by reason", func(ctx context.Context) error {
			return errOf(a.Count(ctx, topic, admin.Query{In: admin.Dead, Group: group, Reason: "no such"}))
		}},
		{"show", func(ctx context.Context) error { return errOf(a.Message(ctx, topic, admin.Ref{ID: id})) }},
		{"explain", func(ctx context.Context) error { return errOf(a.Explain(ctx, topic, admin.Ref{ID: id})) }},
		{"reschedule 1,000", func(ctx context.Context) error {
			return errOf(a.Reschedule(ctx, topic, thousand, delay.For(24*time.Hour), nil))
		}},
		{"copy 1,000", func(ctx context.Context) error { return errOf(a.Copy(ctx, topic, thousand, "copies", nil)) }},
		{"cancel the copies", func(ctx context.Context) error {
			return errOf(a.Cancel(ctx, "copies", admin.Selection{Matching: &admin.Query{}}, nil))
		}},
		{"export a part", func(ctx context.Context) error { return o.export(ctx) }},
	}
}

// pages reads some pages.
func (o *operator) pages(ctx context.Context, q admin.Query, most int) error {
	for range most {
		page, err := o.admin.Entries(ctx, topic, q)
		if err != nil || page.Cursor == "" {
			return err
		}
		q.Cursor = page.Cursor
	}
	return nil
}

// listAll goes through all pages of what is scheduled for tomorrow, and fails unless each
// message is there once.
func (o *operator) listAll(ctx context.Context, want int) error {
	seen := make(map[string]bool, want)
	for q := (admin.Query{From: time.Now().Add(time.Hour), Limit: admin.MaxLimit}); ; {
		page, err := o.admin.Entries(ctx, topic, q)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			if seen[e.ID] {
				return fmt.Errorf("message %s is listed twice", e.ID)
			}
			seen[e.ID] = true
		}
		if q.Cursor = page.Cursor; q.Cursor == "" {
			break
		}
	}
	if len(seen) != want {
		return fmt.Errorf("%d of %d messages are listed", len(seen), want)
	}
	return nil
}

var errEnough = errors.New("enough")

// export stops after some steps.
func (o *operator) export(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	_, err := o.admin.Export(ctx, topic, admin.Query{}, io.Discard, func(p admin.Progress) {
		if p.Done >= 20_000 {
			stop(errEnough)
		}
	})
	if context.Cause(ctx) == errEnough { //nolint:errorlint // it is passed as it is
		return nil
	}
	return err
}

func errOf[T any](_ T, err error) error { return err }
