// Package timetable stores the definitions of schedules in Redis, and when the next ticks of each must be stored. It does
// not decode definitions. The ticks themselves are messages of a topic (package queue).
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

// Scripts returns all scripts.
func Scripts() []*script.Script {
	return []*script.Script{setScript, takeScript, restoreScript, doneScript, readScript, behindScript}
}

// PageSize is the maximum number of definitions that one call reads or writes.
const PageSize = 500

// Timetable has all schedules of a prefix. It is safe for concurrent use.
type Timetable struct{ client *script.Client }

// New returns a Timetable. It does no I/O.
func New(client *script.Client) *Timetable { return &Timetable{client} }

// Definition is a stored schedule.
type Definition struct {
	ID       string
	Revision int64  // when it was defined, µs by Redis's clock; it grows; 0 if another program has damaged the definition
	Text     string // the encoded schedule
	Upcoming time.Time
	Lease    time.Time // the end of the lease of Take; for Done
}

// Change is a new definition of a schedule.
type Change struct {
	ID   string
	Seen int64  // the revision that the caller has seen; 0: none
	Text string // the encoded schedule; "" removes it
}

// Declaration names the declaration that makes a change (periodic.Scheduler.Apply). The zero value means none.
type Declaration struct {
	Owner   string
	Version int64
}

// Set makes changes, whose ticks must be stored from now on. It returns the new revisions; a 0 means that the change was
// not made, because Change.Seen is not the current revision. It returns false if the owner has declared a newer version.
func (t *Timetable) Set(
	ctx context.Context, d Declaration, changes []Change,
) (revisions []int64, now time.Time, current bool, err error) {
	if d.Owner == "" && len(changes) == 0 {
		return nil, now, true, nil
	}
	for {
		chunk := changes[:min(len(changes), PageSize)]
		changes = changes[len(chunk):]
		args := []any{d.Owner, d.Version}
		for _, c := range chunk {
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

// Take leases up to PageSize schedules whose next ticks must be stored, fewer if their definitions are large. next is when
// the next schedule must be taken; zero for none. If Redis has lost these times, Take sets them to now.
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

// restore sets the times of schedules of which only the definitions are left.
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

// Next says when to take a schedule again.
type Next struct {
	Definition
	At time.Time
}

// Done sets when schedules must be taken next, and ends their leases. It skips schedules that have since been changed or
// taken again.
func (t *Timetable) Done(ctx context.Context, list []Next) error {
	for chunk := range slices.Chunk(list, PageSize) {
		var args []any
		for _, n := range chunk {
			args = append(args, n.ID, n.Revision, n.Lease.UnixMilli(), n.At.UnixMilli())
		}
		if _, err := t.run(ctx, doneScript, args); err != nil {
			return err
		}
	}
	return nil
}

// All reads all definitions, sorted by ID.
func (t *Timetable) All(ctx context.Context) ([]Definition, error) {
	seen := map[string]Definition{}
	cursor := "0"
	for first := true; first || cursor != "0"; first = false {
		page, next, _, err := t.read(ctx, cursor)
		if err != nil {
			return nil, err
		}
		for _, d := range page {
			seen[d.ID] = d // pages may overlap
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

// Named reads definitions by ID, and Redis's clock. Missing definitions are left out.
func (t *Timetable) Named(ctx context.Context, ids ...string) (found map[string]Definition, now time.Time, err error) {
	found = make(map[string]Definition, len(ids))
	for chunk := range slices.Chunk(ids, PageSize) {
		var page []Definition
		page, _, now, err = t.read(ctx, "", chunk...)
		if err != nil {
			return nil, time.Time{}, err
		}
		for _, d := range page {
			found[d.ID] = d
		}
	}
	return found, now, nil
}

// Behind counts the schedules that should have been taken longer ago than after, including those whose times Redis has
// lost. longest is the longest of these delays. The cost does not depend on the number of schedules.
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
