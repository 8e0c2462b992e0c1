package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
)

// Set is a set of messages.
type Set string

// The sets. A message is in Scheduled until it is given to the groups, then in one other set for each group that needs
// it. A scheduled message that is due is in Waiting as well.
const (
	Scheduled  Set = "scheduled"   // no group has been given it yet
	Waiting    Set = "waiting"     // scheduled and due, or in the queue of a group, also for a later retry
	InDelivery Set = "in-delivery" // a consumer holds it
	Dead       Set = "dead"        // a dead message
)

// DefaultLimit and MaxLimit are the default and the maximum of Query.Limit.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// Query chooses messages of a topic. The zero value chooses all scheduled messages. They have no deliveries, so
// MinAttempts above 0 excludes them.
type Query struct {
	Set Set // default: Scheduled
	// Group limits the query to one group; "": all groups. It is an error with Scheduled. With Waiting, it excludes due
	// messages that no group has been given yet.
	Group string

	// From and Before limit Entry.At: the due time or, for InDelivery, the end of the lease or, for Dead, when the
	// message was dead-lettered. From is included, Before is not. Zero: no limit.
	From, Before time.Time

	KeyPrefix   string // only messages with a key that begins with this
	Reason      string // only dead messages whose reason contains this
	MinAttempts int    // only messages with at least so many deliveries

	// Limit is the maximum number of Entries, 1 to MaxLimit. Calls that read all entries ignore it. Default:
	// DefaultLimit.
	Limit int

	// Cursor continues where an earlier call ended. Topic and query must be the same, except for the Limit.
	Cursor string
}

// Entry is a message in one of the sets.
type Entry struct {
	ID          string
	Key         string // "" if it has none
	OrderingKey string // likewise
	Topic       string
	Partition   int
	Set         Set
	Group       string           // "" if no group has been given it yet
	State       redisdelay.State // for the group; "" without one
	InLine      bool             // it is due, and waits in line for its ordering key
	At          time.Time        // as Query.From says
	PublishedAt time.Time        // by the publisher's clock; zero if it is not known
	Attempts    int              // deliveries that count: seen by a handler, or lost with a consumer
	Reason      string           // of a dead message
	Size        int              // bytes of the body
	Content     Content
}

// Page is one page of the entries that a Query matches.
type Page struct {
	Entries []Entry
	Cursor  string // for the next page; "" after the last
}

// The maximum size of the bodies that Entries returns, and that one call to Redis returns.
const (
	maxBytes  = 8 << 20
	pageBytes = 1 << 20
)

// Entries returns one page of the messages that a query matches, sorted by Entry.At, then by ID, then by Group.
// Consecutive pages have each message once, even if others are added or removed meanwhile; a message that moves to a
// later time may appear again. A page has fewer entries than Limit if their bodies exceed 8 MiB. After an error, it has the entries that were
// read before.
func (a *Admin) Entries(ctx context.Context, topic string, q Query) (Page, error) {
	q.setDefaults()
	m, c, err := a.begin(ctx, topic, q, q.Limit)
	if err != nil {
		return Page{}, wrap(err, "list %q", topic)
	}
	page, size := Page{}, 0
	for {
		s, err := m.next(ctx)
		if err != nil {
			if len(page.Entries) > 0 {
				page.Cursor = c.String()
			}
			return page, wrap(err, "list %q", topic)
		}
		if s == nil {
			return page, nil
		}
		if n := len(page.Entries); n > 0 && (n == q.Limit || size+s.head[0].Size > maxBytes) {
			page.Cursor = c.String()
			return page, nil
		}
		size += s.head[0].Size
		page.Entries = append(page.Entries, a.entry(topic, s.source, s.head[0]))
		c.Group = encodedName(s.group.Name())
		c = c.at(s.head[0].Position)
	}
}

// begin returns the messages that a query matches, in order, from its cursor on.
func (a *Admin) begin(ctx context.Context, topic string, q Query, limit int) (*merger, cursor, error) {
	if err := q.validate(); err != nil {
		return nil, cursor{}, err
	}
	c, err := parseCursor(merged, topic, q)
	if err != nil {
		return nil, cursor{}, err
	}
	sources, err := a.sources(ctx, topic, q)
	if err != nil {
		return nil, cursor{}, err
	}
	return newMerger(sources, c, limit), c, nil
}

// AllEntries iterates over all messages that a query matches, from its Cursor on, in the order of Entries.
func (a *Admin) AllEntries(ctx context.Context, topic string, q Query) iter.Seq2[Entry, error] {
	q.Limit = MaxLimit
	return func(yield func(Entry, error) bool) {
		for {
			page, err := a.Entries(ctx, topic, q)
			for _, e := range page.Entries {
				if !yield(e, nil) {
					return
				}
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if q.Cursor = page.Cursor; q.Cursor == "" {
				return
			}
		}
	}
}

// entry returns the entry of a message of a source.
func (a *Admin) entry(topic string, s source, found inspect.PageEntry) Entry {
	e := Entry{
		ID: found.ID, Key: keyOf(found.ID), OrderingKey: orderingKeyOf(found.ID), Topic: topic, Partition: s.partition(), Set: s.set, Group: s.group.Name(),
		State: stateIn(s.request.Place, found.Attempts), InLine: s.request.Place == inspect.InLine, At: time.UnixMilli(found.Score),
		PublishedAt: publishedAt(found.ID), Attempts: found.Attempts, Reason: found.Reason, Size: found.Size,
	}
	e.Content = a.content(topic, found.Body, found.Metadata)
	return e
}

// stateIn returns the state of a message in a place of a group; "" in InScheduled.
func stateIn(place inspect.Place, attempts int) redisdelay.State {
	switch {
	case place == inspect.InUnack:
		return redisdelay.StateInDelivery
	case place == inspect.InDead:
		return redisdelay.StateDead
	case place == inspect.InScheduled:
		return ""
	case attempts > 0:
		return redisdelay.StateRetrying
	}
	return redisdelay.StateQueued
}

// Count counts the messages that a query matches. It ignores Limit and Cursor. With KeyPrefix, Reason or MinAttempts,
// it reads all messages of the range. After an error, the result is the count until then.
func (a *Admin) Count(ctx context.Context, topic string, q Query) (int, error) {
	q.Limit, q.Cursor = 0, ""
	q.setDefaults()
	err := q.validate()
	var sources []source
	if err == nil {
		sources, err = a.sources(ctx, topic, q)
	}
	var sum atomic.Int64
	if err == nil {
		err = each(len(sources), func(i int) error {
			n, err := sources[i].count(ctx, q.filters())
			sum.Add(int64(n))
			return err
		})
	}
	return int(sum.Load()), wrap(err, "count %q", topic)
}

// QueryError names the invalid field of a Query, an UpcomingQuery or a Selection, and the problem.
type QueryError struct{ Field, Problem string }

func (e *QueryError) Error() string { return "query field " + e.Field + " " + e.Problem }

func (q *Query) setDefaults() {
	if q.Set == "" {
		q.Set = Scheduled
	}
	if q.Limit == 0 {
		q.Limit = DefaultLimit
	}
}

func (q Query) validate() error {
	switch q.Set {
	case Scheduled, Waiting, InDelivery, Dead:
	default:
		return &QueryError{"Set", fmt.Sprintf("is %q, want %q, %q, %q or %q", q.Set, Scheduled, Waiting, InDelivery, Dead)}
	}
	switch {
	case q.Set == Scheduled && q.Group != "":
		return &QueryError{"Group", "is set, but scheduled messages are of no group"}
	case q.Set != Dead && q.Reason != "":
		return &QueryError{"Reason", "is set, but only dead messages have one"}
	case q.MinAttempts < 0:
		return &QueryError{"MinAttempts", fmt.Sprintf("is %d, want 0 or more", q.MinAttempts)}
	case !q.From.IsZero() && !q.Before.IsZero() && !q.From.Before(q.Before):
		return &QueryError{"Before", "is not after From"}
	case q.Limit < 1 || q.Limit > MaxLimit:
		return &QueryError{"Limit", fmt.Sprintf("is %d, want 1 to %d", q.Limit, MaxLimit)}
	}
	return nil
}

// bounds is the range of scores. They are whole milliseconds.
func (q Query) bounds() (from inspect.Position, before int64) {
	before = inspect.NoEnd
	if !q.From.IsZero() {
		from = inspect.AtTime(ceilMilli(q.From))
	}
	if !q.Before.IsZero() {
		before = ceilMilli(q.Before)
	}
	return from, before
}

func ceilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

// filters reports whether a query must check each message of a range.
func (q Query) filters() bool { return q.KeyPrefix != "" || q.Reason != "" || q.MinAttempts > 0 }

// pageSize is the maximum number of messages that one call reads. It takes Redis about half a millisecond.
const pageSize = 100

// request returns the request for one place. now is Redis's clock, because a scheduled message is in Waiting only once it
// is due.
func (q Query) request(place inspect.Place, now time.Time) inspect.PageRequest {
	from, before := q.bounds()
	if q.Set == Waiting && place == inspect.InScheduled {
		before = min(before, now.UnixMilli()+1)
	}
	return inspect.PageRequest{
		Place: place, From: from, Before: before, Limit: pageSize,
		KeyPrefix: q.KeyPrefix, Reason: q.Reason, MinAttempts: q.MinAttempts,
	}
}

// cursorVersion changes with the format of a cursor.
const cursorVersion = 1

// cursor is a position in the result of a query. Its text is JSON in base64url.
type cursor struct {
	Version int         `json:"v"`
	Kind    string      `json:"k"` // merged or walked
	Topic   encodedName `json:"t"`
	Query   string      `json:"q"` // a hash of the query

	Partition int           `json:"p,omitempty"` // of walked
	Group     encodedName   `json:"g,omitempty"`
	Place     inspect.Place `json:"l,omitempty"` // of walked
	Score     string        `json:"s,omitempty"`
	ID        []byte        `json:"i,omitempty"` // which may be no text
}

// encodedName is the name of a topic or group, in base64, because it may not be UTF-8.
type encodedName string

// MarshalJSON writes a name in base64.
func (n encodedName) MarshalJSON() ([]byte, error) { return json.Marshal([]byte(n)) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (n *encodedName) UnmarshalJSON(text []byte) error {
	var b []byte
	err := json.Unmarshal(text, &b)
	*n = encodedName(b)
	return err
}

// The kinds of cursors.
const (
	merged = "entries" // all partitions and groups in one order
	walked = "steps"   // one after the other
)

func newCursor(kind, topic string, q Query) cursor {
	return cursor{Version: cursorVersion, Kind: kind, Topic: encodedName(topic), Query: q.hash()}
}

// at returns the cursor at another position.
func (c cursor) at(p inspect.Position) cursor {
	c.Score, c.ID = p.Score, []byte(p.ID)
	return c
}

func (c cursor) position() inspect.Position {
	return inspect.Position{Score: c.Score, ID: string(c.ID)}
}

func (c cursor) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		return "" // of these types, there is none
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseCursor reads the cursor of a query for a topic. Without a cursor, the position is zero.
func parseCursor(kind, topic string, q Query) (cursor, error) {
	want := newCursor(kind, topic, q)
	if q.Cursor == "" {
		return want, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(q.Cursor)
	if err != nil {
		return cursor{}, &QueryError{"Cursor", "is not the cursor of a page"}
	}
	var c cursor
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	switch err := decoder.Decode(&c); {
	case err != nil:
		return cursor{}, &QueryError{"Cursor", "is not the cursor of a page"}
	case c.Version != want.Version:
		return cursor{}, &QueryError{"Cursor", fmt.Sprintf("is of version %d, this library knows %d", c.Version, want.Version)}
	case c.Topic != want.Topic:
		return cursor{}, &QueryError{"Cursor", fmt.Sprintf("is of topic %q", c.Topic)}
	case c.Kind != want.Kind:
		return cursor{}, &QueryError{"Cursor", "is of another call"}
	case c.Query != want.Query:
		return cursor{}, &QueryError{"Cursor", "is of another query"}
	}
	return c, nil
}

// hash identifies a query, so that a cursor is not used with another one.
func (q Query) hash() string {
	q.Limit, q.Cursor = 0, ""
	from, before := q.bounds()
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d %q %q %d",
		q.Set, q.Group, from.Score, before, q.KeyPrefix, q.Reason, q.MinAttempts))
	return hex.EncodeToString(sum[:8])
}
