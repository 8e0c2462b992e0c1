package inbox

import (
	"context"
	"fmt"
	"time"
)

// Status says how full the inbox is.
type Status struct {
	Waiting int64         // entries
	Oldest  time.Duration // for how long the first of them has waited; 0 if there is none, or if its id is no time
	Refused int64         // entries that are kept because they cannot be stored
}

// Status returns how full the inbox is. The error is that of ctx or of Redis.
func (i *Inbox) Status(ctx context.Context) (Status, error) {
	g, err := i.intake.Glance(ctx)
	if err != nil {
		return Status{}, fmt.Errorf("redisdelay: inbox: %w", err)
	}
	return Status{Waiting: g.Length, Oldest: g.Oldest(), Refused: g.Refused}, nil
}

// Refusal is an entry that could not be stored. At is when it was refused, by Redis's clock.
type Refusal struct {
	ID     string // of the entry in the inbox
	At     time.Time
	Reason string

	// Fields are those of the entry. Of an entry with more than 64 KiB or 1,000 fields they are the first 1 KiB of each name and
	// value, 64 KiB and 1,000 fields at most, and the field _bytes says how many bytes it had. Of a field that the entry had
	// twice, it is one of them.
	Fields map[string]string
}

// The fields that a refused entry has besides its own.
const (
	entryField  = "_entry"
	reasonField = "_reason"
)

// Refused returns up to most entries that were refused last, the newest first; none if most is 0 or less. To try one again, add
// its Fields to the inbox once more, unless they have _bytes. The error is that of ctx or of Redis.
func (i *Inbox) Refused(ctx context.Context, most int) ([]Refusal, error) {
	entries, err := i.intake.Refused(ctx, int64(most))
	if err != nil {
		return nil, fmt.Errorf("redisdelay: refused entries of the inbox: %w", err)
	}
	list := make([]Refusal, len(entries))
	for n, e := range entries {
		ms, _ := e.Parts() // Redis makes these ids
		r := Refusal{At: time.UnixMilli(int64(ms)), Fields: map[string]string{}}
		for _, f := range e.Fields {
			switch f[0] {
			case entryField:
				r.ID = f[1]
			case reasonField:
				r.Reason = f[1]
			default:
				r.Fields[f[0]] = f[1]
			}
		}
		list[n] = r
	}
	return list, nil
}
