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

	// lookedBytes is about how many bytes of bodies one call for Orphans makes Redis copy.
	lookedBytes = 256 << 10
)

// Orphans calls found with ids that have a body and are in no set: neither scheduled, nor in
// any set of a group, nor moved. It reads all bodies, in bounded steps, and looks into the
// groups that are named, that are registered, and that need a body.
func (p *Partition) Orphans(ctx context.Context, names []string, found func(ids []string)) error {
	names = slices.Clone(names)
	looked, size := 0, 0 // so far
	return p.scan(func(cursor string) ([]string, error) {
		for range 20 {
			count := max(1, min(lookedAt, lookedUp/(3*len(names)+1), fitting(looked, size)))
			args := append([]any{cursor, count}, anys(names)...)
			words, counts, err := p.words(ctx, orphansScript, orphansScript.keys(p.names, "", names), args)
			if err != nil || len(counts) == 2 {
				if err == nil {
					looked, size = looked+counts[0], size+counts[1]
				}
				return words, err
			}
			names = append(names, words[1:]...)
		}
		return nil, errGroupsKeepChanging
	}, found)
}

// fitting is how many bodies to look at next, after some of a size. A few large ones among many
// small ones are only met by and by.
func fitting(looked, size int) int {
	most := max(10, 2*looked)
	if size > 0 {
		most = min(most, lookedBytes*looked/size)
	}
	return most
}

// Bodiless calls found with the ids in a place of the group that have no body.
func (g *Group) Bodiless(ctx context.Context, place Place, found func(ids []string)) error {
	p := g.partition
	return p.scan(func(cursor string) ([]string, error) {
		args := []any{string(place), cursor, lookedAt}
		words, _, err := p.words(ctx, bodilessScript, bodilessScript.keys(p.names, g.name, nil), args)
		return words, err
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
		args := []any{string(how), cursor, lookedAt}
		words, _, err := p.words(ctx, straysScript, straysScript.keys(p.names, "", nil), args)
		return words, err
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

// words calls a script. The numbers that a reply has after its first value are apart.
func (p *Partition) words(ctx context.Context, s *script, keys []string, args []any) (words []string, counts []int, err error) {
	reply, err := p.run(ctx, s, keys, args)
	if err != nil {
		return nil, nil, err
	}
	if len(reply) == 0 {
		return nil, nil, fmt.Errorf("%w: it is empty", errReply)
	}
	for len(reply) > 1 {
		count, is := reply[1].(int64)
		if !is {
			break
		}
		counts, reply = append(counts, int(count)), slices.Delete(reply, 1, 2)
	}
	words, err = stringsOf(reply)
	return words, counts, err
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
