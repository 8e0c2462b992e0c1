package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

var (
	// ErrGroupRetired says that a consumer group has been retired.
	ErrGroupRetired = errors.New("the consumer group is retired")

	// ErrGroupNotFound says that a topic has no such consumer group.
	ErrGroupNotFound = errors.New("the topic has no such consumer group")

	// ErrTopicNotFound says that a topic is not on the list of topics.
	ErrTopicNotFound = errors.New("there is no such topic")

	// ErrGroupAlive says that consumers of a group are alive.
	ErrGroupAlive = errors.New("the consumer group has consumers that are alive")

	errNotRetired = errors.New("the consumer group was restored meanwhile")
)

// Pause says how long groups claim nothing, and why.
type Pause struct {
	Lasts  time.Duration `json:"-"` // 0: until Resume
	By     string        `json:"by,omitempty"`
	Reason string        `json:"reason,omitempty"`
}

// Pause stops a group, or all groups if it is "", from claiming. It replaces an earlier
// pause.
func (t *Topic) Pause(ctx context.Context, group string, pause Pause) error {
	text, err := json.Marshal(pause)
	if err != nil {
		return err
	}
	if err := t.advance(ctx, group); err != nil {
		return err
	}
	return t.everywhere(ctx, func(ctx context.Context, p *Partition) error {
		return p.Group(group).told(ctx, pauseScript, group, script.Milliseconds(pause.Lasts), text, p.Channel(), p.deciding())
	})
}

// Resume ends the pause of a group, or of all groups if it is "". Without one it does nothing,
// or returns ErrGroupNotFound if there is no such group.
func (t *Topic) Resume(ctx context.Context, group string) error {
	return t.everywhere(ctx, func(ctx context.Context, p *Partition) error {
		return p.Group(group).told(ctx, resumeScript, group, p.Channel(), p.deciding())
	})
}

// deciding says how a partition takes what a group is told: the first one decides whether
// there is such a group, and the others follow.
func (p *Partition) deciding() string {
	if p.Number() == 0 {
		return "known"
	}
	return string(retireFollow)
}

// told calls a script that tells a group something. Its answer may be that the group is
// not known.
func (g *Group) told(ctx context.Context, s *script.Script, args ...any) error {
	reply, err := g.Run(ctx, s, args)
	if err == nil && reply.Begins("unknown") {
		return fmt.Errorf("%w: %q", ErrGroupNotFound, g.name)
	}
	return err
}

// everywhere calls do for the first partition, and then for all others at once. A
// partition added meanwhile either has adopted what do wrote in the first one, or is
// visited too.
func (t *Topic) everywhere(ctx context.Context, do func(ctx context.Context, p *Partition) error) error {
	if err := t.Known(ctx); err != nil {
		return err
	}
	if err := do(ctx, t.Partition(0)); err != nil {
		return err
	}
	for done := 1; ; {
		number, err := t.Partitions(ctx)
		if err != nil || number <= done {
			return err
		}
		if err := t.Visit(ctx, done, number, do); err != nil {
			return err
		}
		done = number
	}
}

// advance is Advance for a topic on the list that has a group, or for "". A mistyped name
// must not lock older programs out.
func (t *Topic) advance(ctx context.Context, group string) error {
	if err := t.Known(ctx); err != nil {
		return err
	}
	names, _, err := t.Groups(ctx)
	if err != nil || group != "" && !slices.Contains(names, group) {
		return err
	}
	return t.Advance(ctx)
}

// Groups are the groups of the first partition, and how many partitions there are.
func (t *Topic) Groups(ctx context.Context) (names []string, partitions int, err error) {
	partitions, taught, err := t.raise(ctx, 1, MaxPartitions+1) // a number that never is: it returns the groups
	return taught.groups, partitions, err
}

// Known returns ErrTopicNotFound unless the topic is on the list.
func (t *Topic) Known(ctx context.Context) error {
	if err := t.understand(ctx); err != nil {
		return err
	}
	if !t.store.lists(t.name) {
		return fmt.Errorf("%w: %q", ErrTopicNotFound, t.name)
	}
	return nil
}

// askWhile calls a script until its first word is another one.
func (g *Group) askWhile(ctx context.Context, again string, s *script.Script, args ...any) (word string, rest []string, err error) {
	for {
		reply, err := g.Run(ctx, s, args)
		if err != nil {
			return "", nil, err
		}
		word, rest := reply.Text(), reply.Rest()
		if err := reply.End(); err != nil || word != again {
			return word, rest, err
		}
	}
}

// Leave records that a consumer has ended, which has made all claims of this Group.
func (g *Group) Leave(ctx context.Context, consumer string) error {
	claims := "over"
	if g.repeatable.Load() {
		claims = "repeatable"
	}
	_, err := g.Run(ctx, leaveScript, []any{consumer, g.name, claims})
	return err
}
