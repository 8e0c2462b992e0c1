package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

var (
	// ErrGroupRetired says that a consumer group has been retired.
	ErrGroupRetired = errors.New("the consumer group is retired")

	// ErrGroupNotFound says that a topic has no such consumer group.
	ErrGroupNotFound = errors.New("the topic has no such consumer group")

	// ErrGroupAlive says that a consumer group has consumers that are alive.
	ErrGroupAlive = errors.New("the consumer group has consumers that are alive")

	errNotRetired = errors.New("the consumer group was restored meanwhile")
)

// forgetMessages is how many messages one call frees at most.
const forgetMessages = 500

// Pause is why and for how long nothing is claimed.
type Pause struct {
	Lasts  time.Duration `json:"-"` // 0: until Resume
	By     string        `json:"by,omitempty"`
	Reason string        `json:"reason,omitempty"`
}

// Pause has a group, or all if it is "", claim nothing from now on. It replaces a pause
// that there is.
func (t *Topic) Pause(ctx context.Context, group string, pause Pause) error {
	text, err := json.Marshal(pause)
	if err != nil {
		return err
	}
	return t.everywhere(ctx, func(ctx context.Context, p *Partition) error {
		_, err := p.run(ctx, pauseScript, pauseScript.keys(p.names, "", nil),
			[]any{group, milliseconds(pause.Lasts), text, p.channel()})
		return err
	})
}

// Resume ends the pause of a group, or that of all if it is "". Without one it does nothing.
func (t *Topic) Resume(ctx context.Context, group string) error {
	return t.everywhere(ctx, func(ctx context.Context, p *Partition) error {
		_, err := p.run(ctx, resumeScript, resumeScript.keys(p.names, "", nil), []any{group, p.channel()})
		return err
	})
}

// Retirement says what Retire does with a group that has consumers.
type Retirement int

const (
	// RetireIdle refuses with ErrGroupAlive.
	RetireIdle Retirement = iota
	// RetireForced retires the group all the same.
	RetireForced
)

// Retire takes a group off the topic and frees all that it holds. It may be called again
// to go on with what was begun, also by others at once. It tells progress how many
// messages were freed, one call at a time.
func (t *Topic) Retire(ctx context.Context, group string, how Retirement, progress func(freed int)) error {
	err := t.everywhere(ctx, func(ctx context.Context, p *Partition) error {
		err := p.Group(group).retire(ctx, how)
		how = RetireForced // the first partition has decided for all
		if p.number > 0 && errors.Is(err, ErrGroupNotFound) {
			return nil
		}
		return err
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

// Restore lets a retired group come back with its next subscriber. A group that is not
// retired stays as it is.
func (t *Topic) Restore(ctx context.Context, group string) error {
	return t.everywhere(ctx, func(ctx context.Context, p *Partition) error {
		_, err := p.Group(group).run(ctx, restoreScript, []any{group})
		return err
	})
}

// everywhere calls do for the first partition and then for the others, at once, until
// there are no more: what is added meanwhile has learnt from the first partition what do
// has written there, or is visited as well.
func (t *Topic) everywhere(ctx context.Context, do func(ctx context.Context, p *Partition) error) error {
	number, err := t.Partitions(ctx)
	if err != nil {
		return err
	}
	if err := do(ctx, t.Partition(0)); err != nil {
		return err
	}
	for done := 1; ; {
		number, err = t.Partitions(ctx)
		if err != nil || number <= done {
			return err
		}
		if err := t.visit(ctx, done, number, do); err != nil {
			return err
		}
		done = number
	}
}

// retire marks the group as retired in the partition.
func (g *Group) retire(ctx context.Context, how Retirement) error {
	forced := 0
	if how == RetireForced {
		forced = 1
	}
	reply, err := g.run(ctx, retireScript, []any{g.name, forced})
	if err != nil {
		return err
	}
	words, err := stringsOf(reply)
	if err != nil {
		return err
	}
	switch {
	case len(words) == 0:
		return fmt.Errorf("%w: empty", errReply)
	case words[0] == "unknown":
		return fmt.Errorf("%w: %q", ErrGroupNotFound, g.name)
	case words[0] == "alive":
		return fmt.Errorf("%w: %q has %s", ErrGroupAlive, g.name, strings.Join(words[1:], ", "))
	}
	return nil
}

// forget frees some of what a retired group holds in the partition; 0 if nothing is left.
func (g *Group) forget(ctx context.Context) (freed int, err error) {
	reply, err := g.run(ctx, forgetScript, []any{g.name, forgetMessages, maxFreedBytes})
	if err != nil {
		return 0, err
	}
	if len(reply) != 2 {
		return 0, fmt.Errorf("%w: %d values", errReply, len(reply))
	}
	n, ok := reply[1].(int64)
	switch {
	case !ok:
		return 0, fmt.Errorf("%w: %v freed", errReply, reply[1])
	case reply[0] == "not retired":
		return 0, errNotRetired
	}
	return int(n), nil
}

// Leave says that a consumer has ended.
func (g *Group) Leave(ctx context.Context, consumer string) error {
	_, err := g.run(ctx, leaveScript, []any{consumer})
	return err
}
