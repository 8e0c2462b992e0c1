package admin

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

var errNotBuilt = errors.New("not built yet")

// Set is one of the sets that messages are in.
type Set string

// The sets. A message is in Scheduled, or for each group that needs it in one of the others.
const (
	Scheduled  Set = "scheduled"   // no group has been given it yet
	Waiting    Set = "waiting"     // due and scheduled, or waits in the queue of a group, also for a retry
	InDelivery Set = "in-delivery" // a consumer holds it
	Dead       Set = "dead"        // a dead letter
)

// DefaultLimit and MaxLimit are the default and the most of Query.Limit.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// Query chooses messages of a topic. The zero value is all scheduled ones.
type Query struct {
	In    Set    // default: Scheduled
	Group string // only of this group; "": of all. Not for Scheduled

	// From and Before limit the time by which the set is sorted: the due time; for InDelivery
	// the end of the lease; for Dead when the message became a dead letter. From is included,
	// Before is not. Zero: no limit.
	From, Before time.Time

	KeyPrefix   string // only messages with a key that begins with this
	Reason      string // only dead letters whose reason contains this
	MinAttempts int    // only messages with at least so many deliveries, where deliveries are counted

	// Limit is how many Entries returns at most: 1 to MaxLimit. Default: DefaultLimit. Calls
	// that go through all ignore it.
	Limit int

	// Cursor continues where an earlier call has ended. It holds for the same topic and query,
	// but for the Limit.
	Cursor string
}

// Entry is a message in one of the sets.
type Entry struct {
	ID          string
	Key         string // "" if it has none
	Topic       string
	Partition   int
	Set         Set
	Group       string           // "" if no group has been given it yet
	State       redisdelay.State // for the group; "" without one
	At          time.Time        // as Query.From says
	PublishedAt time.Time        // by the publisher's clock
	Attempts    int              // deliveries that count: seen by a handler, or lost with a consumer
	Reason      string           // of a dead letter
	Size        int              // bytes of the body
	Content     Content
}

// Content is a message as it was published, or as the last Nack of the group left its
// metadata.
type Content struct {
	// Message is the decoded message; nil if the body is missing or cannot be decoded.
	Message *message.Message
	Body    []byte // nil if it is missing
	Err     error  // why Message is nil
}

// Page is some of the entries that a Query matches.
type Page struct {
	Entries []Entry
	Cursor  string // for the next page; "" after the last
}

// Entries returns one page of what a query matches, by Entry.At, then by ID. Pages that
// follow each other's cursors show each message exactly once that is in its place throughout,
// whatever comes and goes meanwhile. One that is moved to a later time may be shown again.
//
// The error is a *QueryError, ErrTopicNotFound, ErrGroupNotFound, redisdelay.ErrEmptyTopic,
// redisdelay.ErrProtocolTooNew, *redisdelay.KeyTypeError, or that of Redis.
func (a *Admin) Entries(ctx context.Context, topic string, q Query) (Page, error) {
	return Page{}, errNotBuilt
}

// All goes through all that a query matches, page by page. The sequence ends after an error.
func (a *Admin) All(ctx context.Context, topic string, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { yield(Entry{}, errNotBuilt) }
}

// Count counts what a query matches. Without KeyPrefix, Reason and MinAttempts it counts by
// ranges; with them it goes through the range in steps.
func (a *Admin) Count(ctx context.Context, topic string, q Query) (int, error) {
	return 0, errNotBuilt
}
