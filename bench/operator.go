package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

const (
	// commandStart is how long the command line takes to start at least.
	commandStart = 20 * time.Millisecond

	operatorName = "operator" // of the client, in Redis's slow log
)

// operator calls package admin, one call after the other.
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
	thousand := admin.ByID(o.known...)
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
		{"cancel the copies", func(ctx context.Context) error {
			return errOf(a.Cancel(ctx, "copies", admin.Matching(admin.Query{}), nil))
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
