package inspect

import (
	"context"
	"slices"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// perScan is the approximate number of messages, keys or turns that one call for Find, FindOrphans, FindMisplaced,
	// FindStrays or FindTurns reads.
	perScan = 500

	// maxLookups is the maximum number of lookups of messages in sets that one call for FindOrphans makes.
	maxLookups = 20_000

	// bytesPerScan is the approximate size of the bodies that Redis copies in one call for FindOrphans.
	bytesPerScan = 256 << 10
)

// FindOrphans calls found with the ids of bodies that are neither scheduled nor in a set of a group. It reads all bodies, in
// bounded steps, and checks the given groups, the registered groups, and those that need a body.
func FindOrphans(ctx context.Context, p *queue.Partition, names []string, found func(scanned int, ids []string)) error {
	names = slices.Clone(names)
	scanned, size := 0, 0 // so far
	return scan(func(cursor string) (next string, err error) {
		for range 20 {
			count := max(1, min(perScan, maxLookups/(3*len(names)+1), fitting(scanned, size)))
			reply, err := p.Run(ctx, orphansScript, "", append([]any{cursor, count}, script.Strings(names)...), names...)
			if err != nil {
				return "", err
			}
			next = reply.Text()
			if next == "groups" {
				names = append(names, reply.Rest()...)
				continue
			}
			read, bytes, ids := reply.Count(), reply.Count(), reply.Rest()
			if err := reply.End(); err != nil {
				return "", err
			}
			scanned, size = scanned+read, size+bytes
			found(read, ids)
			return next, nil
		}
		return "", queue.ErrGroupsKeepChanging
	})
}

// fitting returns how many bodies to read next, from the average size of the previous ones. It grows slowly, in case large
// bodies follow small ones.
func fitting(scanned, size int) int {
	limit := max(10, 2*scanned)
	if size > 0 {
		limit = min(limit, bytesPerScan*scanned/size)
	}
	return limit
}

// Misplaced has the inconsistent messages of one place of a group.
type Misplaced struct {
	Bodiless []string          // ids without a body
	Twice    map[string]string // ids that are in a second place, with that Place
}

// FindMisplaced calls found with the inconsistent messages of a place of the group.
func FindMisplaced(ctx context.Context, g *queue.Group, place Place, found func(scanned int, wrong Misplaced)) error {
	return scan(func(cursor string) (next string, err error) {
		reply, err := g.Run(ctx, misplacedScript, []any{string(place), cursor, perScan})
		if err != nil {
			return "", err
		}
		next, scanned := reply.Text(), reply.Count()
		wrong := Misplaced{Bodiless: reply.First(reply.Count()), Twice: map[string]string{}}
		for reply.More() {
			id := reply.Text()
			wrong.Twice[id] = reply.Text()
		}
		if err := reply.End(); err != nil {
			return "", err
		}
		found(scanned, wrong)
		return next, nil
	})
}

// Record is a hash with an entry per message.
type Record string

// The records that FindLeftovers reads. RefsRecord belongs to the partition, the others to a group.
const (
	RefsRecord         Record = "refs"
	AttemptsRecord     Record = "attempts"
	ReasonsRecord      Record = "reasons"
	NackMetadataRecord Record = "nack_metadata"
)

// lookedInto is the approximate number of entries that one call for FindLeftovers reads; fewer if they are large.
const lookedInto = 100

// FindLeftovers calls found with the ids of entries of a record that no message needs, which it may delete, and with the ids
// of damaged entries.
func FindLeftovers(ctx context.Context, g *queue.Group, in Record, how Tidying, found func(scanned int, gone, garbled []string)) error {
	return scan(func(cursor string) (next string, err error) {
		reply, err := g.Run(ctx, leftoversScript, []any{string(in), string(how), cursor, lookedInto})
		if err != nil {
			return "", err
		}
		next, scanned := reply.Text(), reply.Count()
		gone := reply.First(reply.Count())
		garbled := reply.Rest()
		if err := reply.End(); err != nil {
			return "", err
		}
		found(scanned, gone, garbled)
		return next, nil
	})
}

// Tidying says whether FindStrays and FindLeftovers delete the entries that they find.
type Tidying string

// ListStrays changes nothing. DropStrays deletes entries that no message needs.
const (
	ListStrays Tidying = "list"
	DropStrays Tidying = "drop"
)

// FindStrays calls found with message keys that refer to no body.
func FindStrays(ctx context.Context, p *queue.Partition, how Tidying, found func(scanned int, keys []string)) error {
	return scan(func(cursor string) (next string, err error) {
		reply, err := p.Run(ctx, straysScript, "", []any{string(how), cursor, perScan})
		if err != nil {
			return "", err
		}
		next, scanned, keys := reply.Text(), reply.Count(), reply.Rest()
		if err := reply.End(); err != nil {
			return "", err
		}
		found(scanned, keys)
		return next, nil
	})
}

// scan makes calls, each with the cursor that the previous one returned.
func scan(call func(cursor string) (next string, err error)) error {
	for cursor := "0"; ; {
		next, err := call(cursor)
		if err != nil || next == "0" {
			return err
		}
		cursor = next
	}
}
