// Package timetable keeps the definitions of schedules in Redis, and when the next ticks of each are to be stored. It does
// not know what a definition says. The ticks themselves are messages of a topic (package queue).
package timetable

import (
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
	setScript  = script.New(lua, "set")
	takeScript = script.New(lua, "take")
	doneScript = script.New(lua, "done")
	readScript = script.New(lua, "read")
)

// Scripts are all scripts.
func Scripts() []*script.Script {
	return []*script.Script{setScript, takeScript, doneScript, readScript, behindScript}
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
	ID         string
	Seen       int64 // the revision that the caller has seen; 0: none
	Was, Owner string
	Apart      bool   // Take does not return it
	Text       string // "" removes it
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
			apart := ""
			if c.Apart {
				apart = "apart"
			}
			args = append(args, c.ID, c.Seen, c.Was, c.Owner, apart, c.Text)
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
// processes from it for a while. next is when the next one is to be taken; zero: none is.
func (t *Timetable) Take(ctx context.Context, lease time.Duration) (taken []Definition, now, next time.Time, err error) {
	reply, err := t.run(ctx, takeScript, []any{PageSize, lease.Milliseconds()})
	if err != nil {
		return nil, time.Time{}, time.Time{}, err
	}
	now, next = reply.Time(), reply.Score()
	until := reply.Time()
	for reply.More() {
		taken = append(taken, definition(&reply))
	}
	for i := range taken {
		taken[i].Lease = until
	}
	return taken, now, next, reply.End()
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
		page, next, _, err := t.read(ctx, "all", cursor)
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

// OwnedBy reads the definitions that an owner has declared.
func (t *Timetable) OwnedBy(ctx context.Context, owner string) (list []Definition, err error) {
	args := []string{owner}
	for {
		page, cursor, _, err := t.read(ctx, "owned", args...)
		list = append(list, page...)
		if err != nil || cursor == "0" {
			return list, err
		}
		args = []string{owner, cursor}
	}
}

// Named reads definitions by their names, and when that was by Redis's clock. Those that are not there are left out.
func (t *Timetable) Named(ctx context.Context, ids ...string) (found map[string]Definition, now time.Time, err error) {
	found = make(map[string]Definition, len(ids))
	for some := range slices.Chunk(ids, PageSize) {
		var page []Definition
		page, _, now, err = t.read(ctx, "named", append([]string{""}, some...)...)
		if err != nil {
			return nil, time.Time{}, err
		}
		for _, d := range page {
			found[d.ID] = d
		}
	}
	return found, now, nil
}

func (t *Timetable) read(ctx context.Context, how string, args ...string) (list []Definition, cursor string, now time.Time, err error) {
	reply, err := t.run(ctx, readScript, append([]any{how}, script.Strings(args)...))
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
