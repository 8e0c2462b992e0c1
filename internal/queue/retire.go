package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// forgetMessages is how many messages one call of forget frees at most.
const forgetMessages = 200

// Retirement says what Retire does with a group that has consumers.
type Retirement string

const (
	// RetireIdle returns ErrGroupAlive.
	RetireIdle Retirement = "idle"
	// RetireForced retires the group anyway.
	RetireForced Retirement = "forced"

	// retireEnded retires it anyway, and lets it come back.
	retireEnded Retirement = "ended"
	// retireFollow retires in other partitions a group that the first one has retired.
	retireFollow Retirement = "follow"
)

// Retire removes a group from the topic and frees all that it holds. Calling it again
// continues an earlier call; concurrent calls are safe. It calls progress, never
// concurrently, with how many messages were freed.
func (t *Topic) Retire(ctx context.Context, group string, how Retirement, progress func(freed int)) error {
	if err := t.advance(ctx, group); err != nil {
		return err
	}
	err := t.everywhere(ctx, func(ctx context.Context, p *Partition) error {
		if p.Number() > 0 {
			return p.Group(group).retire(ctx, retireFollow)
		}
		return p.Group(group).retire(ctx, how)
	})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	return t.Each(ctx, func(ctx context.Context, p *Partition) error {
		for {
			freed, err := p.Group(group).forget(ctx)
			if err != nil || freed == 0 {
				return err
			}
			mu.Lock()
			progress(freed)
			mu.Unlock()
		}
	})
}

// Restore lets a retired group come back with its next subscriber. First it frees what an
// interrupted retirement has left. It leaves a group that is not retired as it is.
func (t *Topic) Restore(ctx context.Context, group string) error {
	return t.everywhere(ctx, func(ctx context.Context, p *Partition) error {
		return p.Group(group).restore(ctx)
	})
}

func (g *Group) restore(ctx context.Context) error {
	for how := ""; ; how = "freed" {
		word, _, err := g.askWhile(ctx, "", restoreScript, g.name, how)
		if err != nil || word != "held" {
			return err
		}
		if _, err := g.forgetAll(ctx, noDeadline); err != nil && !errors.Is(err, errNotRetired) {
			return err
		}
	}
}

// retire marks the group as retired in the partition.
func (g *Group) retire(ctx context.Context, how Retirement) error {
	word, rest, err := g.askWhile(ctx, "more", retireScript, g.name, string(how))
	if err != nil {
		return err
	}
	switch word {
	case "unknown":
		return fmt.Errorf("%w: %q", ErrGroupNotFound, g.name)
	case "alive":
		return fmt.Errorf("%w: %q has %s", ErrGroupAlive, g.name, strings.Join(rest, ", "))
	}
	return nil
}

// forget frees some of what a retired group holds in the partition; 0 if nothing is left.
func (g *Group) forget(ctx context.Context) (freed int, err error) {
	reply, err := g.Run(ctx, forgetScript, []any{g.name, forgetMessages, MaxFreedBytes})
	if err != nil {
		return 0, err
	}
	if reply.Begins("not retired") {
		return 0, errNotRetired
	}
	reply.Text() // whether there is more
	return reply.Count(), reply.End()
}

// Free frees what a retired group still holds. If it is not retired, Free does nothing.
func (t *Topic) Free(ctx context.Context, group string) error {
	return t.Each(ctx, func(ctx context.Context, p *Partition) error {
		_, err := p.Group(group).forgetAll(ctx, noDeadline)
		if errors.Is(err, errNotRetired) {
			return nil
		}
		return err
	})
}
