package queue

import (
	"context"
	"errors"
	"fmt"
)

// MaxGroups is the most consumer groups that a topic can have: each costs every claim
// and every message.
const MaxGroups = 1000

// ErrTooManyGroups says that a topic has MaxGroups consumer groups already.
var ErrTooManyGroups = errors.New("the topic has too many consumer groups")

var errGroupsKeepChanging = errors.New("consumer groups keep changing")

// Group is the consuming side of one topic partition for one consumer group.
// Claim must not be called concurrently; everything else may be.
type Group struct {
	partition *Partition
	name      string
	others    []string // owned by Claim: the other groups of the partition
}

// Group returns a consumer group of the partition. It does no I/O.
func (p *Partition) Group(name string) *Group {
	return &Group{partition: p, name: name}
}

// Register makes the group known, so that it gets what is due and has not been given
// to the groups yet, and all that falls due from now on. It returns ErrTooManyGroups
// when there are MaxGroups, and ErrGroupRetired. With no memory left in Redis, it still succeeds for a group
// that is known.
func (g *Group) Register(ctx context.Context) error {
	reply, err := g.run(ctx, registerScript, []any{g.name, MaxGroups})
	if err != nil {
		return err
	}
	switch {
	case len(reply) == 1 && reply[0] == "full":
		return fmt.Errorf("%w: %q would be one more than %d", ErrTooManyGroups, g.name, MaxGroups)
	case len(reply) == 1 && reply[0] == "retired":
		return fmt.Errorf("%w: %q", ErrGroupRetired, g.name)
	}
	return nil
}

// run calls a script for the group; each are the groups whose keys it is given besides.
func (g *Group) run(ctx context.Context, s *script, args []any, each ...string) ([]any, error) {
	return g.partition.run(ctx, s, s.keys(g.partition.names, g.name, each), args)
}
