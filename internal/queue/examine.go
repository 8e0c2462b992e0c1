package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

const (
	// lookedAt is about how many messages one call of the scripts for Orphans, Misplaced and
	// Strays looks at.
	lookedAt = 500

	// lookedUp is how many times Orphans looks for a message in a set, at most.
	lookedUp = 20_000

	// lookedBytes is about how many bytes of bodies one call for Orphans makes Redis copy.
	lookedBytes = 256 << 10
)

// Orphans calls found with ids that have a body and are in no set: neither scheduled, nor in
// any set of a group. It reads all bodies, in bounded steps, and looks into the groups
// that are named, that are registered, and that need a body.
func (p *Partition) Orphans(ctx context.Context, names []string, found func(looked int, ids []string)) error {
	names = slices.Clone(names)
	looked, size := 0, 0 // so far
	return p.scan(func(cursor string) ([]string, int, error) {
		for range 20 {
			count := max(1, min(lookedAt, lookedUp/(3*len(names)+1), fitting(looked, size)))
			args := append([]any{cursor, count}, anys(names)...)
			words, counts, err := p.words(ctx, orphansScript, orphansScript.keys(p.names, "", names), args)
			if err != nil {
				return nil, 0, err
			}
			if len(counts) == 2 {
				looked, size = looked+counts[0], size+counts[1]
				return words, counts[0], nil
			}
			names = append(names, words[1:]...)
		}
		return nil, 0, errGroupsKeepChanging
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

// Misplaced is what is wrong with messages in one place of a group.
type Misplaced struct {
	Bodiless []string          // ids without a body
	Twice    map[string]string // ids that are in a second place, and which Place
}

// Misplaced calls found with what is wrong with messages in a place of the group.
func (g *Group) Misplaced(ctx context.Context, place Place, found func(looked int, wrong Misplaced)) error {
	p := g.partition
	return p.scan(func(cursor string) ([]string, int, error) {
		args := []any{string(place), cursor, lookedAt}
		words, counts, err := p.words(ctx, bodilessScript, bodilessScript.keys(p.names, g.name, nil), args)
		if err != nil {
			return nil, 0, err
		}
		some, twice, looked, err := split(words, counts)
		if err == nil && len(twice)%2 != 0 {
			err = fmt.Errorf("%w: %q", errReply, twice)
		}
		if err != nil {
			return nil, 0, err
		}
		wrong := Misplaced{Bodiless: some, Twice: map[string]string{}}
		for pair := range slices.Chunk(twice, 2) {
			wrong.Twice[pair[0]] = pair[1]
		}
		found(looked, wrong)
		return words[:1], looked, nil
	}, nil)
}

// split takes the words after a cursor apart: how many of the first list there are is the
// second count of the reply, and how many were looked at the first.
func split(words []string, counts []int) (first, second []string, looked int, err error) {
	if len(counts) != 2 || counts[1] < 0 || counts[1] > len(words)-1 {
		return nil, nil, 0, fmt.Errorf("%w: %d words with counts %v", errReply, len(words), counts)
	}
	return words[1 : 1+counts[1]], words[1+counts[1]:], counts[0], nil
}

// Record is a hash with an entry for each of some messages.
type Record string

// The records that Leftovers looks into. RefsRecord is of the partition, the others are of a group.
const (
	RefsRecord     Record = "refs"
	AttemptsRecord Record = "attempts"
	ReasonsRecord  Record = "reasons"
	ChangedRecord  Record = "changed"
)

// lookedInto is about how many entries one call for Leftovers reads, which may be some KiB each.
const lookedInto = 100

// Leftovers calls found with ids whose entries in a record no message needs, which it may drop,
// and with ids whose entry cannot be read.
func (g *Group) Leftovers(ctx context.Context, in Record, how Tidying, found func(looked int, gone, garbled []string)) error {
	p := g.partition
	return p.scan(func(cursor string) ([]string, int, error) {
		args := []any{string(in), string(how), cursor, lookedInto}
		words, counts, err := p.words(ctx, leftoversScript, leftoversScript.keys(p.names, g.name, nil), args)
		if err != nil {
			return nil, 0, err
		}
		gone, garbled, looked, err := split(words, counts)
		if err != nil {
			return nil, 0, err
		}
		found(looked, gone, garbled)
		return words[:1], looked, nil
	}, nil)
}

// WrongTypes returns the keys of the partition, and of groups of it, that hold a value of a type
// that this library does not write there.
func (p *Partition) WrongTypes(ctx context.Context, groups []string) ([]*KeyTypeError, error) {
	return p.store.wrongTypes(ctx, p.keys(groups))
}

// WrongType is the list of topics, if it holds a value of another type; else nil.
func (s *Store) WrongType(ctx context.Context) (*KeyTypeError, error) {
	wrong, err := s.wrongTypes(ctx, []typedKey{{s.registry(), kinds[topics].holds}})
	if err != nil || len(wrong) == 0 {
		return nil, err
	}
	return wrong[0], nil
}

// wrongTypes returns those of some keys in one slot that hold something else.
func (s *Store) wrongTypes(ctx context.Context, keys []typedKey) (wrong []*KeyTypeError, err error) {
	for some := range slices.Chunk(keys, MaxMessages) {
		holds, err := s.types(ctx, some)
		if err != nil {
			return nil, err
		}
		for i, key := range some {
			if got := holds[i]; got != key.holds && got != "none" {
				wrong = append(wrong, &KeyTypeError{Key: key.name, Type: got, Want: key.holds})
			}
		}
	}
	return wrong, nil
}

// types are what some keys in one slot hold; "none" for those that do not exist.
func (s *Store) types(ctx context.Context, keys []typedKey) ([]string, error) {
	return promptly(ctx, s, func(ctx context.Context) ([]string, error) {
		node, err := s.master(ctx, keys[0].name)
		if err != nil {
			return nil, err
		}
		answers := make([]*redis.StatusCmd, len(keys))
		_, err = node.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, key := range keys {
				answers[i] = pipe.Type(ctx, key.name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		types := make([]string, len(keys))
		for i, answer := range answers {
			types[i] = answer.Val()
		}
		return types, nil
	})
}

// Expiry is what has become of a group that might end by itself.
type Expiry string

// What EndIfExpired may say: the group has a consumer, or has had one lately; it ends if the same is
// asked some seconds later; it has ended, and what it held is freed; or there is no such group.
const (
	NotExpired    Expiry = "alive"
	ExpiryNoticed Expiry = "noticed"
	Expired       Expiry = "expired"
	NeverExpires  Expiry = "gone"
)

// EndIfExpired ends the group in the partition if it has expired, by the rules of
// Topic.EndExpired, and frees all that it holds.
func (g *Group) EndIfExpired(ctx context.Context) (Expiry, error) {
	words, err := g.askWhile(ctx, "more", expireScript, g.name)
	if err != nil {
		return "", err
	}
	ending := Expiry(words[0])
	if ending == Expired {
		_, err = g.forgetAll(ctx, noDeadline)
	}
	if errors.Is(err, errNotRetired) { // another call has done the rest
		err = nil
	}
	return ending, err
}

// Tidying says what Strays does with what it finds.
type Tidying string

// Strays looks for message keys that lead to no body, or drops them.
const (
	LookForStrays Tidying = "look"
	DropStrays    Tidying = "drop"
)

// Strays calls found with message keys that lead to no body. No message holds them.
func (p *Partition) Strays(ctx context.Context, how Tidying, found func(looked int, keys []string)) error {
	return p.scan(func(cursor string) ([]string, int, error) {
		args := []any{string(how), cursor, lookedAt}
		words, counts, err := p.words(ctx, straysScript, straysScript.keys(p.names, "", nil), args)
		if err == nil && len(counts) != 1 {
			err = fmt.Errorf("%w: it has counts %v", errReply, counts)
		}
		if err != nil {
			return nil, 0, err
		}
		return words, counts[0], nil
	}, found)
}

// scan makes calls, each from the cursor of the one before. Unless found is nil, scan calls it
// with how many entries a call has looked at and what it has found.
func (p *Partition) scan(call func(cursor string) ([]string, int, error), found func(looked int, words []string)) error {
	for cursor := "0"; ; {
		words, looked, err := call(cursor)
		if err != nil {
			return err
		}
		if found != nil {
			found(looked, words[1:])
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
