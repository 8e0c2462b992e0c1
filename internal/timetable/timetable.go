// Package timetable keeps the definitions of schedules in Redis, and when the next ticks of each are to be stored. It does
// not know what a definition says. The ticks themselves are messages of a topic (package queue).
package timetable

import (
	"cmp"
	"context"
	"embed"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

//go:embed lua/*.lua
var lua embed.FS

var (
	setScript     = script.New(lua, "set")
	takeScript    = script.New(lua, "take")
	restoreScript = script.New(lua, "restore")
	doneScript    = script.New(lua, "done")
	readScript    = script.New(lua, "read")
	behindScript  = script.New(lua, "behind")
)

// Scripts are all scripts.
func Scripts() []*script.Script {
	return []*script.Script{setScript, takeScript, restoreScript, doneScript, readScript, behindScript}
}

// PageSize is how many definitions one call reads or writes at most.
const PageSize = 500

// Timetable is all schedules of a prefix. It is safe for concurrent use.
type Timetable struct{ client *script.Client }

// New returns a Timetable. It does no I/O.
func New(client *script.Client) *Timetable { return &Timetable{client} }

// Definition is a schedule as Redis has it.
type Definition struct {
	ID       string
	Revision int64  // when it was defined, µs by Redis's clock; it grows; 0 if another program has damaged the definition
	Text     string // what the caller has set
	Upcoming time.Time
	Lease    time.Time // until when it was taken, for Done
}

// Change is a new definition of a schedule.
type Change struct {
	ID   string
	Seen int64  // the revision that the caller has seen; 0: none
	Text string // "" removes it
}

// Declaration is what changes are part of. The zero value is none.
type Declaration struct {
	Owner   string
	Version int64
}

// Set makes changes. It returns their new revisions, and 0 for each that the caller has not seen the last revision of; and
// when they are to be taken, which is now. It returns false if the owner has declared a newer version.
func (t *Timetable) Set(
	ctx context.Context, d Declaration, changes []Change,
) (revisions []int64, now time.Time, current bool, err error) {
	if d.Owner == "" && len(changes) == 0 {
		return nil, now, true, nil
	}
	for {
		some := changes[:min(len(changes), PageSize)]
		changes = changes[len(some):]
		args := []any{d.Owner, d.Version}
		for _, c := range some {
			args = append(args, c.ID, c.Seen, c.Text)
		}
		reply, err := t.run(ctx, setScript, args)
		if err != nil {
			return nil, time.Time{}, false, err
		}
		if reply.Text() == "superseded" {
			return nil, time.Time{}, false, reply.End()
		}
		now = reply.Time()
		for _, text := range reply.Texts() {
			revision, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				reply.Fail("a revision is %q", text)
			}
			revisions = append(revisions, revision)
		}
		if err := reply.End(); err != nil || len(changes) == 0 {
			return revisions, now, true, err
		}
	}
}

// Take takes up to PageSize schedules whose next ticks are to be stored, fewer if their definitions are large, and keeps other
// processes from it for a while. next is when the next one is to be taken; zero: none is. If Redis has lost when schedules are to
// be taken, it restores them first: they are to be taken now.
func (t *Timetable) Take(ctx context.Context, lease time.Duration) (taken []Definition, now, next time.Time, err error) {
	reply, err := t.run(ctx, takeScript, []any{PageSize, lease.Milliseconds()})
	if err != nil {
		return nil, time.Time{}, time.Time{}, err
	}
	lost := reply.Int()
	now, next = reply.Time(), reply.Score()
	until := reply.Time()
	for reply.More() {
		taken = append(taken, definition(&reply))
	}
	for i := range taken {
		taken[i].Lease = until
	}
	if err := reply.End(); err != nil || lost <= 0 {
		return taken, now, next, err
	}
	return taken, now, now, t.restore(ctx)
}

// restore lets schedules be taken that Redis does not know anything of but their definitions.
func (t *Timetable) restore(ctx context.Context) error {
	for cursor := ""; cursor != "0"; {
		reply, err := t.run(ctx, restoreScript, []any{cmp.Or(cursor, "0")})
		if err != nil {
			return err
		}
		cursor = reply.Text()
		if err := reply.End(); err != nil {
			return err
		}
	}
	return nil
}

// Next is when a schedule that was taken is to be taken again.
type Next struct {
	Definition
	At time.Time
}

// Done says when schedules are to be taken next, unless they were defined or taken again since.
func (t *Timetable) Done(ctx context.Context, list []Next) error {
	for some := range slices.Chunk(list, PageSize) {
		var args []any
		for _, n := range some {
			args = append(args, n.ID, n.Revision, n.Lease.UnixMilli(), n.At.UnixMilli())
		}
		if _, err := t.run(ctx, doneScript, args); err != nil {
			return err
		}
	}
	return nil
}

// All reads all definitions, sorted.
func (t *Timetable) All(ctx context.Context) ([]Definition, error) {
	seen := map[string]Definition{}
	cursor := "0"
	for first := true; first || cursor != "0"; first = false {
		page, next, _, err := t.read(ctx, cursor)
		if err != nil {
			return nil, err
		}
		for _, d := range page {
			seen[d.ID] = d // a page may repeat what another has
		}
		cursor = next
	}
	list := make([]Definition, 0, len(seen))
	for _, d := range seen {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b Definition) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

// Named reads definitions by their names, and when that was by Redis's clock. Those that are not there are left out.
func (t *Timetable) Named(ctx context.Context, ids ...string) (found map[string]Definition, now time.Time, err error) {
	found = make(map[string]Definition, len(ids))
	for some := range slices.Chunk(ids, PageSize) {
		var page []Definition
		page, _, now, err = t.read(ctx, "", some...)
		if err != nil {
			return nil, time.Time{}, err
		}
		for _, d := range page {
			found[d.ID] = d
		}
	}
	return found, now, nil
}

// Behind counts the schedules that should have been taken for longer than a time, and returns for how long the first of them.
// A schedule of which Redis has lost when it is to be taken counts, too. The cost does not depend on how many there are.
func (t *Timetable) Behind(ctx context.Context, after time.Duration) (count int, longest time.Duration, err error) {
	reply, err := t.run(ctx, behindScript, []any{after.Milliseconds()})
	if err != nil {
		return 0, 0, err
	}
	count, longest = reply.Count(), time.Duration(reply.Int())*time.Millisecond
	return count, longest, reply.End()
}

func (t *Timetable) read(ctx context.Context, from string, ids ...string) (list []Definition, cursor string, now time.Time, err error) {
	reply, err := t.run(ctx, readScript, append([]any{from}, script.Strings(ids)...))
	if err != nil {
		return nil, "", time.Time{}, err
	}
	now, cursor = reply.Time(), reply.Text()
	for reply.More() {
		list = append(list, definition(&reply))
	}
	return list, cursor, now, reply.End()
}

func definition(reply *script.Reply) Definition {
	d := Definition{ID: reply.Text(), Upcoming: reply.Score()}
	revision, text, found := strings.Cut(reply.Text(), " ")
	if number, err := strconv.ParseUint(revision, 10, 63); found && err == nil {
		d.Revision, d.Text = int64(number), text
	}
	return d
}

func (t *Timetable) run(ctx context.Context, s *script.Script, args []any) (script.Reply, error) {
	keys := t.client.PrefixKeys(s)
	if err := t.client.Check(ctx, keys[0]); err != nil {
		return script.Reply{}, err
	}
	return t.client.Run(ctx, script.Call{Script: s, Partition: -1, Keys: keys, Args: args})
}
