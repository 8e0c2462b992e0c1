package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// maxCallers is how many calls of Cancel and Reschedule go to Redis at once.
	maxCallers = 16

	// maxPatience is how long such a call may change anything, if its context has no
	// earlier deadline.
	maxPatience = 10 * time.Second
)

var (
	// ErrNotFound says that a key or an id leads to no message, or for Reschedule to none that waits.
	ErrNotFound = errors.New("there is no such message")

	// errHeld is the ErrNotFound of a message that Reschedule leaves to the handlers that have it.
	errHeld = fmt.Errorf("%w that waits: it is being handled", ErrNotFound)

	// ErrDead says that only dead letters are left of the message, and perhaps acks.
	ErrDead = fmt.Errorf("%w to change: it is a dead letter", ErrNotFound)
)

// callers number the requests of Cancel and Reschedule, each caller one at a time: by
// name and number, Redis distinguishes a repeated request from a new one.
type callers struct {
	start sync.Once
	idle  chan *caller
}

type caller struct {
	name       string
	request    int64
	repeatable bool // a copy of a call may still run
}

// take waits for an idle caller, for as long as ctx lasts.
func (c *callers) take(ctx context.Context) (*caller, error) {
	c.start.Do(func() {
		name := rand.Text()
		c.idle = make(chan *caller, maxCallers)
		for i := range maxCallers {
			c.idle <- &caller{name: fmt.Sprintf("%s/%d", name, i)}
		}
	})
	select {
	case one := <-c.idle:
		one.request++
		return one, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *callers) put(one *caller) { c.idle <- one }

// over are the names of those that have made calls of which no copy can run any more, unless
// they are in use.
func (c *callers) over() (names []string) {
	for range len(c.idle) {
		select {
		case one := <-c.idle:
			if one.request > 0 && !one.repeatable {
				names = append(names, one.name)
			}
			c.idle <- one
		default:
			return names
		}
	}
	return names
}

// callAs makes one call of a caller, which is the first argument.
func (p *Partition) callAs(ctx context.Context, c *caller, s *script, groups []string, args []any) ([]any, error) {
	name := &written{text: c.name}
	args = append(append([]any{name}, args...), anys(groups)...)
	reply, err := p.run(ctx, s, s.keys(p.names, "", groups), args)
	c.repeatable = c.repeatable || err != nil || !name.once()
	return reply, err
}

// Cancel takes back the message that a key leads to, from all groups that wait for it or
// handle it. It returns ErrNotFound when there is none, and where the message was.
func (p *Partition) Cancel(ctx context.Context, key string) (Standing, error) {
	return p.withKey(ctx, func(c *caller, until int64, groups []string) ([]any, error) {
		return p.cancel(ctx, c, until, "key", key, groups)
	})
}

// CancelID is Cancel of the message with an id.
func (p *Partition) CancelID(ctx context.Context, id string) (Standing, error) {
	return p.withKey(ctx, func(c *caller, until int64, groups []string) ([]any, error) {
		return p.cancel(ctx, c, until, "id", id, groups)
	})
}

func (p *Partition) cancel(ctx context.Context, c *caller, until int64, by, name string, groups []string) ([]any, error) {
	return p.callAs(ctx, c, cancelScript, groups, []any{c.request, until, by, name, p.channel()})
}

// Reschedule makes the waiting message that a key leads to due after a delay. It returns
// ErrNotFound when there is none, or none that waits, and where the message was.
func (p *Partition) Reschedule(ctx context.Context, key string, delay time.Duration) (Standing, error) {
	return p.withKey(ctx, func(c *caller, until int64, groups []string) ([]any, error) {
		return p.reschedule(ctx, c, until, groups, "key", key, "in", milliseconds(delay))
	})
}

// RescheduleAt is Reschedule to a time by Redis's clock, in ms.
func (p *Partition) RescheduleAt(ctx context.Context, key string, due int64) (Standing, error) {
	return p.withKey(ctx, func(c *caller, until int64, groups []string) ([]any, error) {
		return p.reschedule(ctx, c, until, groups, "key", key, "at", due)
	})
}

// RescheduleID is RescheduleAt of the message with an id.
func (p *Partition) RescheduleID(ctx context.Context, id string, due int64) (Standing, error) {
	return p.withKey(ctx, func(c *caller, until int64, groups []string) ([]any, error) {
		return p.reschedule(ctx, c, until, groups, "id", id, "at", due)
	})
}

// reschedule makes one call. which says how the message is found, and when it is due.
func (p *Partition) reschedule(ctx context.Context, c *caller, until int64, groups []string, which ...any) ([]any, error) {
	return p.callAs(ctx, c, rescheduleScript, groups, append([]any{c.request, until}, append(which, p.channel())...))
}

// withKey makes one request. The first call asks for the groups, whose keys the script
// needs, and for Redis's time; later calls say until when they count. So a copy of a call
// that Redis runs later, when nobody waits for it, leaves alone the message that holds
// the key by then.
func (p *Partition) withKey(
	ctx context.Context, call func(c *caller, until int64, groups []string) ([]any, error),
) (Standing, error) {
	c, err := p.callers.take(ctx)
	if err != nil {
		return Standing{}, err
	}
	defer p.callers.put(c)
	var until int64
	var groups []string
	for range 6 {
		reply, err := call(c, until, groups)
		if err != nil {
			return Standing{}, err
		}
		if len(reply) < 2 || reply[0] != "groups" {
			list, err := stringsOf(reply)
			if err != nil {
				return Standing{}, err
			}
			return standingOf(list)
		}
		all, err := knownOf(reply)
		if err != nil {
			return Standing{}, err
		}
		until, groups = all.asOf+leftOf(ctx).Milliseconds(), all.names
	}
	return Standing{}, errGroupsKeepChanging
}

// leftOf is how long the caller waits for a call.
func leftOf(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(time.Until(deadline), maxPatience)
	}
	return maxPatience
}
