package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// traffic is what callers and consumers measure while 5,000 messages a second go through a topic. As many are scheduled
// in the full topic, which changes pages everywhere.
type traffic struct {
	publish []time.Duration // how long each call took
	late    []time.Duration // of each message
}

func (t traffic) sample(when string) sample {
	return sample{
		{"Publish, p50, " + when, "ms", quantile(t.publish, 0.5)},
		{"Publish, p99, " + when, "ms", quantile(t.publish, 0.99)},
		{"Publish, max, " + when, "ms", quantile(t.publish, 1)},
		{"late, p50, " + when, "ms", quantile(t.late, 0.5)},
		{"late, p99, " + when, "ms", quantile(t.late, 0.99)},
		{"late, max, " + when, "ms", quantile(t.late, 1)},
	}
}

// trafficWhile publishes and handles messages until do returns. It fails if a message is lost.
func trafficWhile(ctx context.Context, l *lab, do func(ctx context.Context) error) (t traffic, err error) {
	const name = "traffic"
	subscriber, err := newSubscriber(l, group, inFlight)
	if err != nil {
		return t, err
	}
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return t, err
	}
	var handled atomic.Int64
	var c crowd
	if err := c.join(ctx, subscriber, name, func(msg *message.Message) { //nolint:contextcheck // it needs none
		delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
		t.late = append(t.late, time.Since(delivery.DueAt))
		handled.Add(1)
		msg.Ack()
	}); err != nil {
		return t, err
	}
	done := make(chan error, 1)
	go func() { done <- do(ctx) }() // trafficWhile waits for it
	published, err := t.publishUntil(done, publisher, name)
	err = errors.Join(err, l.until(ctx, func() (bool, error) { return handled.Load() >= published, nil }))
	return t, errors.Join(err, publisher.Close(), c.leave())
}

// publishUntil publishes until there is a result, and returns how many messages it has published to be handled.
func (t *traffic) publishUntil(done <-chan error, publisher message.Publisher, topic string) (published int64, err error) {
	const each, every = 25, 5 * time.Millisecond // 5,000 a second
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			return published, err
		case <-ticker.C:
		}
		now, later := newMessages(each), newMessages(each)
		for i := range each {
			delay.Message(now[i], delay.For(time.Duration(50+4*i)*time.Millisecond))
			tomorrow(later[i])
		}
		if err := errors.Join(t.call(publisher, topic, now), t.call(publisher, fullTopic, later)); err != nil {
			return published, errors.Join(err, <-done)
		}
		published += each
	}
}

func (t *traffic) call(publisher message.Publisher, topic string, list []*message.Message) error {
	began := time.Now()
	err := publisher.Publish(topic, list...)
	t.publish = append(t.publish, time.Since(began))
	return err
}

// undisturbed measures traffic alone.
func undisturbed(ctx context.Context, l *lab) (sample, error) {
	t, err := trafficWhile(ctx, l, func(ctx context.Context) error { return pause(ctx, l.duration(10*time.Second)) })
	return t.sample("alone"), err
}

// forking is an operation for which Redis forks.
type forking struct {
	name   string
	begin  []any       // the command
	ended  [][2]string // fields of INFO persistence
	copied string      // the field with the number of copied bytes
	file   string      // the file that it writes
	start  string      // the setting that makes Redis start from the file
}

var (
	bgsave = forking{
		"BGSAVE",
		[]any{"BGSAVE"},
		[][2]string{{"rdb_bgsave_in_progress", "0"}, {"rdb_last_bgsave_status", "ok"}},
		"rdb_last_cow_size",
		"RDB file", "appendonly no",
	}
	rewrite = forking{
		"rewrite",
		[]any{"CONFIG", "SET", "appendonly", "yes"},
		[][2]string{
			{"aof_enabled", "1"}, {"aof_rewrite_scheduled", "0"}, {"aof_rewrite_in_progress", "0"}, {"aof_last_bgrewrite_status", "ok"},
		},
		"aof_last_cow_size",
		"append-only file", "appendonly yes",
	}
)

// whileForked measures traffic while Redis writes a file from a forked copy of itself.
func whileForked(ctx context.Context, l *lab, f forking) (sample, error) {
	used, err := l.info(ctx, "Memory", "used_memory")
	if err != nil {
		return nil, err
	}
	var took time.Duration
	t, err := trafficWhile(ctx, l, func(ctx context.Context) error {
		began := time.Now()
		defer func() { took = time.Since(began) }()
		if err := l.admin.Do(ctx, f.begin...).Err(); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		return l.until(ctx, func() (bool, error) { return l.reads(ctx, "Persistence", f.ended...) })
	})
	if err != nil {
		return nil, err
	}
	forked, err1 := l.info(ctx, "Stats", "latest_fork_usec")
	copied, err2 := l.info(ctx, "Persistence", f.copied)
	return append(t.sample("during "+f.name),
		reading{f.name + " took", "s", took.Seconds()},
		reading{f.name + ", fork", "ms", forked / 1000},
		reading{f.name + ", copied", "MB", copied / 1e6},
		reading{f.name + ", copied, of used_memory", "%", 100 * copied / used},
	), errors.Join(err1, err2)
}
