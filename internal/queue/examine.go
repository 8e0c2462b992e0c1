package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

const (
	// lookedAt is about how many messages one call of the scripts for Orphans, Bodiless and
	// Strays looks at.
	lookedAt = 500

	// lookedUp is how many times Orphans looks for a message in a set, at most.
	lookedUp = 20_000
)

// Orphans calls found with ids that have a body and are in no set: neither scheduled, nor in
// any set of a group, nor moved. It reads all bodies, in bounded steps, and looks into the
// groups that are named, that are registered, and that need a body.
func (p *Partition) Orphans(ctx context.Context, names []string, found func(ids []string)) error {
	names = slices.Clone(names)
	return p.scan(func(cursor string) ([]string, error) {
		for range 20 {
			count := max(1, min(lookedAt, lookedUp/(3*len(names)+1)))
			args := append([]any{cursor, count}, anys(names)...)
			words, err := p.words(ctx, orphansScript, orphansScript.keys(p.names, "", names), args)
			if err != nil || words[0] != "groups" {
				return words, err
			}
			names = append(names, words[1:]...)
		}
		return nil, errGroupsKeepChanging
	}, found)
}

// Bodiless calls found with the ids in a place of the group that have no body.
func (g *Group) Bodiless(ctx context.Context, place Place, found func(ids []string)) error {
	p := g.partition
	return p.scan(func(cursor string) ([]string, error) {
		return p.words(ctx, bodilessScript, bodilessScript.keys(p.names, g.name, nil), []any{string(place), cursor, lookedAt})
	}, found)
}

// Tidying says what Strays does with what it finds.
type Tidying string

// Strays looks for message keys that lead to no body, or drops them.
const (
	LookForStrays Tidying = "look"
	DropStrays    Tidying = "drop"
)

// Strays calls found with message keys that lead to no body. No message holds them.
func (p *Partition) Strays(ctx context.Context, how Tidying, found func(keys []string)) error {
	return p.scan(func(cursor string) ([]string, error) {
		return p.words(ctx, straysScript, straysScript.keys(p.names, "", nil), []any{string(how), cursor, lookedAt})
	}, found)
}

// scan makes calls, each from the cursor of the one before, and calls found with what they
// have found.
func (p *Partition) scan(call func(cursor string) ([]string, error), found func([]string)) error {
	for cursor := "0"; ; {
		words, err := call(cursor)
		if err != nil {
			return err
		}
		if len(words) > 1 {
			found(words[1:])
		}
		if cursor = words[0]; cursor == "0" {
			return nil
		}
	}
}

// words calls a script. Of a reply, it leaves out how many messages the script has looked at.
func (p *Partition) words(ctx context.Context, s *script, keys []string, args []any) ([]string, error) {
	reply, err := p.run(ctx, s, keys, args)
	if err != nil {
		return nil, err
	}
	if len(reply) > 1 {
		if _, counted := reply[1].(int64); counted {
			reply = slices.Delete(reply, 1, 2)
		}
	}
	if len(reply) == 0 {
		return nil, fmt.Errorf("%w: it is empty", errReply)
	}
	return stringsOf(reply)
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
