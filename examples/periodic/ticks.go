package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// wanted is how many ticks of each schedule the program waits for.
var wanted = map[string]int{"heartbeat": 4, "price-sync": 2, "report-eu": 1}

// ticks are those that have come. It is safe for concurrent use.
type ticks struct {
	since time.Time     // what is older is of an earlier run
	done  chan struct{} // closed when all have come

	mu    sync.Mutex
	times map[string]int // guarded by mu; how often each tick has come
	of    map[string]int // guarded by mu; how many have come of each schedule
}

func newTicks(since time.Time) *ticks {
	return &ticks{since: since, done: make(chan struct{}), times: map[string]int{}, of: map[string]int{}}
}

// handle is the handler of all topics.
func (t *ticks) handle(instance int, msg *message.Message) error {
	tick, ok := periodic.TickOf(msg)
	if !ok || tick.Nominal.Before(t.since) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Printf("instance %d: %s  %s\n", instance, tick, msg.Payload)
	t.times[tick.String()]++
	t.of[tick.Schedule]++
	if t.complete() {
		select {
		case <-t.done:
		default:
			close(t.done)
		}
	}
	return nil
}

// complete reports whether all have come. The caller holds mu.
func (t *ticks) complete() bool {
	for schedule, n := range wanted {
		if t.of[schedule] < n {
			return false
		}
	}
	return true
}

// wait waits until all have come, and returns an error if one has come twice, or too late.
func (t *ticks) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	var errs []error
	select {
	case <-t.done:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("ticks are missing: %w", ctx.Err()))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for tick, n := range t.times {
		if n > 1 {
			errs = append(errs, fmt.Errorf("the tick %s has come %d times", tick, n))
		}
	}
	if len(errs) == 0 {
		fmt.Printf("\nEach of %d ticks has come once.\n", len(t.times))
	}
	return errors.Join(errs...)
}
