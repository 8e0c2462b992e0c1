package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
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

// Pause says how long groups claim nothing, who paused them, and why.
type Pause struct {
	Duration time.Duration `json:"-"` // 0: until Resume
	By       string        `json:"by,omitempty"`
	Reason   string        `json:"reason,omitempty"`
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
		return p.Group(group).tell(ctx, pauseScript, group, milliseconds(pause.Duration), text, p.channel(), p.deciding())
	})
}

// Resume ends the pause of a group, or of all groups if it is "". Without one it does nothing,
// or returns ErrGroupNotFound if there is no such group.
func (t *Topic) Resume(ctx context.Context, group string) error {
	return t.everywhere(ctx, func(ctx context.Context, p *Partition) error {
		return p.Group(group).tell(ctx, resumeScript, group, p.channel(), p.deciding())
	})
}

// deciding says how a partition takes what a group is told: the first one decides whether
// there is such a group, and the others follow.
func (p *Partition) deciding() string {
	if p.number == 0 {
		return "known"
	}
	return string(retireFollow)
}

// tell calls a script that tells a group something. Its answer may be that the group is
// not known.
func (g *Group) tell(ctx context.Context, s *script, args ...any) error {
	reply, err := g.run(ctx, s, args)
	if err == nil && len(reply) > 0 && reply[0] == "unknown" {
		return fmt.Errorf("%w: %q", ErrGroupNotFound, g.name)
	}
	return err
}

// everywhere calls do for the first partition, and then for all others at once. A
// partition added meanwhile either has adopted what do wrote in the first one, or is
// visited too.
func (t *Topic) everywhere(ctx context.Context, do func(ctx context.Context, p *Partition) error) error {
	if err := t.known(ctx); err != nil {
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
		if err := t.visit(ctx, done, number, do); err != nil {
			return err
		}
		done = number
	}
}

// advance is Advance for a topic on the list that has a group, or for "". A mistyped name
// must not lock older programs out.
func (t *Topic) advance(ctx context.Context, group string) error {
	if err := t.known(ctx); err != nil {
		return err
	}
	names, err := t.groups(ctx)
	if err != nil || group != "" && !slices.Contains(names, group) {
		return err
	}
	return t.Advance(ctx)
}

// groups are those of the first partition.
func (t *Topic) groups(ctx context.Context) ([]string, error) {
	_, taught, err := t.raise(ctx, 1, MaxPartitions+1) // a number that never is: it returns the groups
	return taught.groups, err
}

// known returns ErrTopicNotFound unless the topic is on the list.
func (t *Topic) known(ctx context.Context) error {
	if err := t.understand(ctx); err != nil {
		return err
	}
	if !t.store.lists(t.name) {
		return fmt.Errorf("%w: %q", ErrTopicNotFound, t.name)
	}
	return nil
}

// Backlog counts the messages that await groups.
type Backlog struct {
	Due        int // messages that are due, not yet given to the groups
	Queued     int // messages that wait for a group, including retries
	InDelivery int // messages that a consumer holds
}

// Backlog counts the messages that await a group, or all groups if it is "".
func (t *Topic) Backlog(ctx context.Context, group string) (Backlog, error) {
	if err := t.known(ctx); err != nil {
		return Backlog{}, err
	}
	number, taught, err := t.raise(ctx, 1, MaxPartitions+1) // a number that never is: it returns the groups
	if err != nil {
		return Backlog{}, err
	}
	names := taught.groups
	if group != "" {
		if !slices.Contains(names, group) {
			return Backlog{}, fmt.Errorf("%w: %q", ErrGroupNotFound, group)
		}
		names = []string{group}
	}
	var mu sync.Mutex
	var sum Backlog
	err = t.visit(ctx, 0, number, func(ctx context.Context, p *Partition) error {
		b, err := p.backlog(ctx, names)
		mu.Lock()
		defer mu.Unlock()
		sum.Due, sum.Queued, sum.InDelivery = sum.Due+b.Due, sum.Queued+b.Queued, sum.InDelivery+b.InDelivery
		return err
	})
	return sum, err
}

// backlog counts the messages that await groups in the partition. Messages not yet given
// to the groups count once.
func (p *Partition) backlog(ctx context.Context, names []string) (Backlog, error) {
	var sum Backlog
	for _, name := range names {
		reply, err := p.Group(name).run(ctx, backlogScript, nil)
		if err != nil {
			return Backlog{}, err
		}
		var counts [3]int64
		for i, value := range reply {
			n, ok := value.(int64)
			if !ok || len(reply) != len(counts) {
				return Backlog{}, fmt.Errorf("%w: a backlog of %v", errReply, reply)
			}
			counts[i] = n
		}
		sum = Backlog{int(counts[0]), sum.Queued + int(counts[1]), sum.InDelivery + int(counts[2])}
	}
	return sum, nil
}

// askWhile calls a script until its first word is another one.
func (g *Group) askWhile(ctx context.Context, again string, s *script, args ...any) ([]string, error) {
	for {
		reply, err := g.run(ctx, s, args)
		if err != nil {
			return nil, err
		}
		words, err := stringsOf(reply)
		if err != nil {
			return nil, err
		}
		if len(words) == 0 {
			return nil, fmt.Errorf("%w: it is empty", errReply)
		}
		if words[0] != again {
			return words, nil
		}
	}
}

// Leave records that a consumer has ended, which has made all claims of this Group.
func (g *Group) Leave(ctx context.Context, consumer string) error {
	claims := "over"
	if g.repeatable.Load() {
		claims = "repeatable"
	}
	_, err := g.run(ctx, leaveScript, []any{consumer, g.name, claims})
	return err
}
