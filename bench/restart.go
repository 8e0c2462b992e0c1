package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// probes are messages that become due every 100 ms.
type probes struct {
	mu   sync.Mutex
	seen []probe // guarded by mu
}

type probe struct{ due, handed time.Time }

func (p *probes) receive(msg *message.Message) {
	handed := time.Now()
	delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
	msg.Ack()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, probe{delivery.DueAt, handed})
}

// between returns the probes that became due between two times, in the order in which they were delivered after the first time.
func (p *probes) between(from, to time.Time) (list []probe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.seen {
		if one.due.After(from) && one.due.Before(to) && one.handed.After(from) {
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b probe) int { return a.handed.Compare(b.handed) })
	return list
}

// current reports whether consumers have handled the probes that were due before the consumers started.
func (p *probes) current() bool {
	now := time.Now()
	return len(p.between(now.Add(-3*probeEvery), now)) > 0
}

const probeEvery = 100 * time.Millisecond

// forkAndRestart makes Redis write a file, under load, and start from it, while consumers wait.
func (d *durable) forkAndRestart(ctx context.Context, f forking, total int) (sample, error) {
	probeTopic := "probes of " + f.name
	if err := publishProbes(ctx, d.lab, probeTopic); err != nil { // before the file is written, so that the file has them
		return nil, err
	}
	forked, err := whileForked(ctx, d.lab, f)
	if err != nil {
		return nil, err
	}
	if err := d.settings(f.start); err != nil {
		return nil, err
	}
	restarted, err := d.restart(ctx, probeTopic, f.file, total)
	return append(forked, restarted...), err
}

// publishProbes publishes enough probes for the time that writing and loading the file may take.
func publishProbes(ctx context.Context, l *lab, topic string) error {
	const lasting = 10 * time.Minute
	list := newMessages(int(lasting / probeEvery))
	for i, msg := range list {
		delay.Message(msg, delay.For(time.Duration(i)*probeEvery))
	}
	return publishAll(ctx, l, topic, list)
}

// restart kills the server, which restarts from a file, while consumers wait for probes.
func (d *durable) restart(ctx context.Context, probeTopic, file string, total int) (sample, error) {
	const consumers = 10
	subscriber, err := newSubscriber(d.lab, group, 0)
	if err != nil {
		return nil, err
	}
	var p probes
	var c crowd
	for range consumers {
		if err := c.join(ctx, subscriber, probeTopic, p.receive); err != nil {
			return nil, err
		}
	}
	if err := d.until(ctx, func() (bool, error) { return p.current(), nil }); err != nil {
		return nil, err
	}
	killed := time.Now()
	if err := d.killed(ctx); err != nil {
		return nil, err
	}
	back := time.Now()
	if err := d.present(ctx, total); err != nil {
		return nil, fmt.Errorf("restart from %s: %w", file, err)
	}
	var late []probe
	err = d.until(ctx, func() (bool, error) {
		late = p.between(killed, back)
		return len(late) >= int(back.Sub(killed)/probeEvery)-1, nil
	})
	if err := errors.Join(err, c.leave()); err != nil {
		return nil, fmt.Errorf("restart from %s, %d probes: %w", file, len(late), err)
	}
	return sample{
		{file + ", until Redis answers", "s", back.Sub(killed).Seconds()},
		{file + ", first message after that", "ms", max(0, milli(late[0].handed.Sub(back)))},
		{file + ", last of those due meanwhile", "ms", max(0, milli(late[len(late)-1].handed.Sub(back)))},
	}, nil
}

// killed kills the server and waits until it answers again.
func (d *durable) killed(ctx context.Context) error {
	before, err := d.infoText(ctx, "Server", "run_id")
	if err != nil {
		return err
	}
	if err := d.server.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	// A client that waits between attempts would notice the server late.
	impatient := redis.NewClient(&redis.Options{Addr: d.addr, MaxRetries: -1, DialerRetries: 1, PoolSize: 1})
	defer impatient.Close() //nolint:errcheck // only read
	return d.until(ctx, func() (bool, error) {
		info := impatient.InfoMap(ctx, "server", "persistence")
		id := info.Item("Server", "run_id")
		return info.Err() == nil && id != "" && id != before && info.Item("Persistence", "loading") == "0", ctx.Err()
	})
}
