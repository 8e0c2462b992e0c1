package queue

import (
	"context"
	"errors"
	"math"
	"time"
)

// Place is a sorted set of a partition that messages are in.
type Place string

// The places. But for InScheduled, a group has one of each.
const (
	InScheduled Place = "scheduled"
	InQueue     Place = "queue"
	InUnack     Place = "unack"
	InDead      Place = "dead"
)

// Position is a place in the order of a sorted set: by score, then by id. The zero value
// is before everything.
type Position struct {
	Score int64 // ms
	ID    string
}

// NoEnd is a PageRequest.Before without an end.
const NoEnd = math.MaxInt64

// PageRequest asks for some of the messages in a place.
type PageRequest struct {
	Place       Place
	After       Position // not included
	Before      int64    // ms, not included; NoEnd for no end
	Limit       int      // entries at most, 1 to MaxMessages
	KeyPrefix   string   // only messages with such a key
	Reason      string   // only those whose reason contains this; for InDead
	MinAttempts int
	Bytes       int // text of bodies to return at most, unless the first has more; 0: no bodies
}

// PageEntry is a message in a place.
type PageEntry struct {
	ID       string
	Score    int64  // ms
	Token    string // the attempts entry; "1" if there is none
	Attempts int
	Reason   string
	Size     int
	Body     []byte // nil if it is missing, or was not asked for
	Metadata []byte // as a Nack of the group left it; nil if none did
}

// Page is what was found.
type Page struct {
	Entries []PageEntry
	Next    Position // where to go on: the last message that was looked at
	More    bool     // there may be more after Next
	Now     time.Time
}

// Page returns some messages in a place of the group, or of the partition if it is
// InScheduled. It looks at up to MaxMessages messages, so it may return few or none and
// say that there is More.
func (g *Group) Page(ctx context.Context, r PageRequest) (Page, error) {
	return Page{}, errors.New("not built yet")
}
