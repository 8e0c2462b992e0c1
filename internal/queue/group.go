package queue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// MaxGroups is how many consumer groups a topic can have: each makes every message cost more.
const MaxGroups = 1000

// ErrTooManyGroups says that a topic already has MaxGroups consumer groups.
var ErrTooManyGroups = errors.New("the topic has too many consumer groups")

// ErrGroupsKeepChanging says that a call that has to name all groups has not been able to.
var ErrGroupsKeepChanging = errors.New("consumer groups keep changing")

// Group is the consuming side of one topic partition for one consumer group.
// Claim must not be called concurrently; all other methods may be.
type Group struct {
	partition *Partition
	name      string
	topic     *Topic // nil without a Membership
	terms     Terms

	repeatable atomic.Bool // a copy of a claim may still run

	// owned by Claim
	others known // groups of the partition
	afresh bool  // it has registered the group
}

// Group returns a consumer group of the partition. It does no I/O.
func (p *Partition) Group(name string) *Group {
	return &Group{partition: p, name: name}
}

// Name is the group's name.
func (g *Group) Name() string { return g.name }

// Partition is the partition of the group.
func (g *Group) Partition() *Partition { return g.partition }

// Register adds the group, which then gets all messages that have not been given to the
// groups yet. It returns ErrTooManyGroups if there are MaxGroups, and ErrGroupRetired if
// the group is retired. If the group has expired, Register first frees what it still holds.
// When no memory is left in Redis, it still succeeds for a registered group.
func (g *Group) Register(ctx context.Context) error {
	share, err := g.share(ctx)
	if err != nil {
		return err
	}
	for range 5 {
		reply, err := g.Run(ctx, registerScript, []any{g.name, MaxGroups, script.Milliseconds(g.terms.Lasts), share})
		if err != nil {
			return err
		}
		switch {
		case reply.Begins("full"):
			return fmt.Errorf("%w: %q would be one more than %d", ErrTooManyGroups, g.name, MaxGroups)
		case reply.Begins("retired"):
			return fmt.Errorf("%w: %q", ErrGroupRetired, g.name)
		case !reply.Begins("expired"):
			return nil
		}
		if _, err := g.forgetAll(ctx, noDeadline); err != nil && !errors.Is(err, errNotRetired) {
			return err
		}
	}
	return ErrGroupsKeepChanging
}

// share is the group's share of its limits in the partition; "" for none.
func (g *Group) share(ctx context.Context) (string, error) {
	if g.terms.Limits == (Limits{}) {
		return "", nil
	}
	partitions, err := g.topic.Partitions(ctx)
	if err != nil {
		return "", err
	}
	return g.terms.Limits.share(g.partition.Number(), partitions)
}

// Run calls a script with the group's keys, and with those of each for each other group.
func (g *Group) Run(ctx context.Context, s *script.Script, args []any, each ...string) (script.Reply, error) {
	return g.partition.Run(ctx, s, g.name, args, each...)
}
