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

// probes are messages of which one falls due each 100 ms.
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

// between returns those that fell due between two times, in the order in which they were handed over after the first.
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

// lateness is how late those were that fell due between two times.
func (p *probes) lateness(from, to time.Time) (list []time.Duration) {
	for _, one := range p.between(from, to) {
		list = append(list, one.handed.Sub(one.due))
	}
	return list
}

// restart kills the server, which starts again, while consumers wait for probes. from is what it starts from.
func (d *durable) restart(ctx context.Context, from string, total int) (sample, error) {
	const name, consumers, every = "probes", 10, 100 * time.Millisecond
	if err := d.prepare(ctx, name, from, every); err != nil {
		return nil, err
	}
	subscriber, err := newSubscriber(d.lab, group, 0)
	if err != nil {
		return nil, err
	}
	var p probes
	var c crowd
	for range consumers {
		if err := c.join(ctx, subscriber, name, p.receive); err != nil {
			return nil, err
		}
	}
	killed := time.Now()
	if err := d.killed(ctx); err != nil {
		return nil, err
	}
	back := time.Now()
	var late []probe
	err = d.until(ctx, func() (bool, error) {
		late = p.between(killed, back)
		return len(late) >= int(back.Sub(killed)/every)-1, nil
	})
	if err := errors.Join(err, c.leave(), d.present(ctx, total)); err != nil {
		return nil, fmt.Errorf("restart from %s, %d probes: %w", from, len(late), err)
	}
	return sample{
		{from + ", until Redis answers", "s", back.Sub(killed).Seconds()},
		{from + ", first message after that", "ms", milli(late[0].handed.Sub(back))},
		{from + ", last of those due meanwhile", "ms", milli(late[len(late)-1].handed.Sub(back))},
	}, nil
}

// prepare leaves the server with a file that has all messages, and enough probes for as long as it may take to load it.
func (d *durable) prepare(ctx context.Context, name, from string, every time.Duration) error {
	const lasting = 5 * time.Minute
	list := newMessages(int(lasting / every))
	for i, msg := range list {
		delay.Message(msg, delay.For(time.Duration(i)*every))
	}
	if err := publishAll(ctx, d.lab, name, list); err != nil {
		return err
	}
	if from != "RDB" {
		return d.settings("appendonly yes")
	}
	if err := d.admin.Do(ctx, "BGSAVE").Err(); err != nil {
		return err
	}
	return d.until(ctx, func() (bool, error) { return d.reads(ctx, "Persistence", bgsave.ended...) })
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
	// One that waits before it tries again would see the server late.
	impatient := redis.NewClient(&redis.Options{Addr: d.addr, MaxRetries: -1, DialerRetries: 1, PoolSize: 1})
	defer impatient.Close() //nolint:errcheck // only read
	return d.until(ctx, func() (bool, error) {
		info := impatient.InfoMap(ctx, "server", "persistence")
		id := info.Item("Server", "run_id")
		return info.Err() == nil && id != "" && id != before && info.Item("Persistence", "loading") == "0", ctx.Err()
	})
}
