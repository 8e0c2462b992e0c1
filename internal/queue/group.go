package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// MaxGroups is how many consumer groups a topic can have: each makes every message cost more.
const MaxGroups = 1000

// ErrTooManyGroups says that a topic already has MaxGroups consumer groups.
var ErrTooManyGroups = errors.New("the topic has too many consumer groups")

var errGroupsKeepChanging = errors.New("consumer groups keep changing")

// Group is the consuming side of one topic partition for one consumer group.
// Claim must not be called concurrently; all other methods may be.
type Group struct {
	partition *Partition
	name      string
	topic     *Topic // nil without a Membership
	terms     Terms

	repeatable atomic.Bool // a copy of a claim may still run

	// owned by Claim
	others    known // groups of the partition
	recreated bool  // it has registered the group
}

// Group returns a consumer group of the partition. It does no I/O.
func (p *Partition) Group(name string) *Group {
	return &Group{partition: p, name: name}
}

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
		reply, err := g.run(ctx, registerScript, []any{g.name, MaxGroups, milliseconds(g.terms.Expiry), share})
		if err != nil {
			return err
		}
		words, err := stringsOf(reply)
		if err != nil {
			return err
		}
		switch {
		case slices.Equal(words, []string{"full"}):
			return fmt.Errorf("%w: %q would be one more than %d", ErrTooManyGroups, g.name, MaxGroups)
		case slices.Equal(words, []string{"retired"}):
			return fmt.Errorf("%w: %q", ErrGroupRetired, g.name)
		case !slices.Equal(words, []string{"expired"}):
			return nil
		}
		if _, err := g.forgetAll(ctx, noDeadline); err != nil && !errors.Is(err, errNotRetired) {
			return err
		}
	}
	return errGroupsKeepChanging
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
	return g.terms.Limits.share(g.partition.number, partitions)
}

// run calls a script with the group's keys, and with those of each for each other group.
func (g *Group) run(ctx context.Context, s *script, args []any, each ...string) ([]any, error) {
	return g.partition.run(ctx, s, s.keys(g.partition.names, g.name, each), args)
}
