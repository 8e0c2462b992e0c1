package inbox

import (
	"context"
	"fmt"
	"time"
)

// Rejection is an entry that cannot be stored.
type Rejection struct {
	ID     string    // of the entry in the inbox
	At     time.Time // when it was rejected, by Redis's clock
	Reason string

	// Fields are the fields of the entry, one for each name. If the entry has more than 64 KiB or 1,000 fields, they are
	// cut to that, and each name and value to 1 KiB; a field _bytes has the size of the entry.
	Fields map[string]string
}

// The fields that are added to a rejected entry.
const (
	entryField  = "_entry"
	reasonField = "_reason"
)

// Rejected returns up to most rejected entries, the newest first. To retry one, add its Fields to the inbox again, unless
// they are cut (_bytes). The error is that of ctx or of Redis.
func (i *Inbox) Rejected(ctx context.Context, most int) ([]Rejection, error) {
	entries, err := i.intake.Rejected(ctx, int64(most))
	if err != nil {
		return nil, fmt.Errorf("redisdelay: rejected entries of the inbox: %w", err)
	}
	list := make([]Rejection, len(entries))
	for n, e := range entries {
		ms, _ := e.Parts() // Redis makes these ids
		r := Rejection{At: time.UnixMilli(int64(ms)), Fields: map[string]string{}}
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
