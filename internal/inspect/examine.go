package inspect

import (
	"context"
	"slices"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// lookedAt is about the maximum of messages, keys or turns that one call for Find, FindOrphans, FindMisplaced,
	// FindStrays or FindTurns reads.
	lookedAt = 500

	// lookedUp is how many times FindOrphans looks for a message in a set, at most.
	lookedUp = 20_000

	// lookedBytes is about how many bytes of bodies one call for FindOrphans makes Redis copy.
	lookedBytes = 256 << 10
)

// FindOrphans calls found with ids that have a body and are in no set: neither scheduled, nor in
// any set of a group. It reads all bodies, in bounded steps, and checks the groups
// that are named, that are registered, and that need a body.
func FindOrphans(ctx context.Context, p *queue.Partition, names []string, found func(looked int, ids []string)) error {
	names = slices.Clone(names)
	looked, size := 0, 0 // so far
	return scan(func(cursor string) (next string, err error) {
		for range 20 {
			count := max(1, min(lookedAt, lookedUp/(3*len(names)+1), fitting(looked, size)))
			reply, err := p.Run(ctx, orphansScript, "", append([]any{cursor, count}, script.Strings(names)...), names...)
			if err != nil {
				return "", err
			}
			next = reply.Text()
			if next == "groups" {
				names = append(names, reply.Rest()...)
				continue
			}
			some, bytes, ids := reply.Count(), reply.Count(), reply.Rest()
			if err := reply.End(); err != nil {
				return "", err
			}
			looked, size = looked+some, size+bytes
			found(some, ids)
			return next, nil
		}
		return "", queue.ErrGroupsKeepChanging
	})
}

// fitting is how many bodies to read next, after some of a size. A few large ones among many
// small ones are only met by and by.
func fitting(looked, size int) int {
	limit := max(10, 2*looked)
	if size > 0 {
		limit = min(limit, lookedBytes*looked/size)
	}
	return limit
}

// Misplaced is what is wrong with messages in one place of a group.
type Misplaced struct {
	Bodiless []string          // ids without a body
	Twice    map[string]string // ids that are in a second place, and which Place
}

// FindMisplaced calls found with what is wrong with messages in a place of the group.
func FindMisplaced(ctx context.Context, g *queue.Group, place Place, found func(looked int, wrong Misplaced)) error {
	return scan(func(cursor string) (next string, err error) {
		reply, err := g.Run(ctx, bodilessScript, []any{string(place), cursor, lookedAt})
		if err != nil {
			return "", err
		}
		next, looked := reply.Text(), reply.Count()
		wrong := Misplaced{Bodiless: reply.First(reply.Count()), Twice: map[string]string{}}
		for reply.More() {
			id := reply.Text()
			wrong.Twice[id] = reply.Text()
		}
		if err := reply.End(); err != nil {
			return "", err
		}
		found(looked, wrong)
		return next, nil
	})
}

// Record is a hash with an entry for each of some messages.
type Record string

// The records that FindLeftovers reads. RefsRecord is of the partition, the others are of a group.
const (
	RefsRecord         Record = "refs"
	AttemptsRecord     Record = "attempts"
	ReasonsRecord      Record = "reasons"
	NackMetadataRecord Record = "nack_metadata"
)

// lookedInto is about how many entries one call for Leftovers reads; fewer if they are large.
const lookedInto = 100

// FindLeftovers calls found with ids whose entries in a record no message needs, which it may drop,
// and with ids whose entry cannot be read.
func FindLeftovers(ctx context.Context, g *queue.Group, in Record, how Tidying, found func(looked int, gone, garbled []string)) error {
	return scan(func(cursor string) (next string, err error) {
		reply, err := g.Run(ctx, leftoversScript, []any{string(in), string(how), cursor, lookedInto})
		if err != nil {
			return "", err
		}
		next, looked := reply.Text(), reply.Count()
		gone := reply.First(reply.Count())
		garbled := reply.Rest()
		if err := reply.End(); err != nil {
			return "", err
		}
		found(looked, gone, garbled)
		return next, nil
	})
}

// Tidying says what FindStrays and FindLeftovers do with what they find.
type Tidying string

// LookForStrays changes nothing. DropStrays also drops what nothing needs.
const (
	LookForStrays Tidying = "look"
	DropStrays    Tidying = "drop"
)

// FindStrays calls found with message keys that lead to no body. No message holds them.
func FindStrays(ctx context.Context, p *queue.Partition, how Tidying, found func(looked int, keys []string)) error {
	return scan(func(cursor string) (next string, err error) {
		reply, err := p.Run(ctx, straysScript, "", []any{string(how), cursor, lookedAt})
		if err != nil {
			return "", err
		}
		next, looked, keys := reply.Text(), reply.Count(), reply.Rest()
		if err := reply.End(); err != nil {
			return "", err
		}
		found(looked, keys)
		return next, nil
	})
}

// scan makes calls, each from the cursor that the one before has returned.
func scan(call func(cursor string) (next string, err error)) error {
	for cursor := "0"; ; {
		next, err := call(cursor)
		if err != nil || next == "0" {
			return err
		}
		cursor = next
	}
}
