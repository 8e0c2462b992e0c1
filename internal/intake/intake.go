// Package intake reads the entries of the inbox, a stream that programs in any language write to, in batches. It does not
// interpret entries, and does not store the messages that they contain: package queue does.
package intake

import (
	"context"
	"embed"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

//go:embed lua/*.lua
var lua embed.FS

var (
	nextScript   = script.New(lua, "next")
	planScript   = script.New(lua, "plan")
	glanceScript = script.New(lua, "glance")
)

// Scripts are all scripts.
func Scripts() []*script.Script { return []*script.Script{nextScript, planScript, glanceScript} }

// ErrEnded says that another reader has ended the batch.
var ErrEnded = errors.New("the batch has ended")

// maxStep limits the random step by which batch numbers grow while Redis's clock is behind them. The step is random, so that a number
// that Redis has forgotten is hardly used again, and small, so that the clock, in microseconds, overtakes the numbers.
const maxStep = 1 << 12

// Intake is the inbox of a prefix. It is safe for concurrent use.
type Intake struct{ client *script.Client }

// New returns an Intake. It does no I/O.
func New(client *script.Client) *Intake { return &Intake{client} }

// Entry is an entry of the inbox.
type Entry struct {
	ID     string
	Fields [][2]string // names and values
	Bytes  int         // of the fields, if the entry is too large for the reader, which gets no fields; else 0
}

const (
	// minTime is the lowest id of an entry that counts as a time, in ms: one of September 2001. Seconds since 1970 are below it.
	minTime = 1_000_000_000_000

	// maxAhead is how far the time in an entry's id may be ahead of Redis's clock, which may have been set back.
	maxAhead = time.Hour

	// lastID is the largest id. No range may begin after it.
	lastID = "18446744073709551615-18446744073709551615"
)

// Time returns when the entry was written, by Redis's clock, whose current time is now. A program may give an entry any id, such
// as a counter. If the id is not a plausible time, the time is unknown.
func (e Entry) Time(now time.Time) (at time.Time, known bool) {
	ms, _ := e.Parts()
	if ms < minTime || ms > uint64(now.Add(maxAhead).UnixMilli()) {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(ms)), true
}

// Parts returns the two numbers of the entry's id: ms by Redis's clock, and a count.
func (e Entry) Parts() (ms, count uint64) {
	first, second, _ := strings.Cut(e.ID, "-")
	ms, _ = strconv.ParseUint(first, 10, 64) // Redis accepts no other ids
	count, _ = strconv.ParseUint(second, 10, 64)
	return ms, count
}

// Batch is a batch of entries. All readers get the same entries for the same number.
type Batch struct {
	Number  int64 // increases with each batch
	Now     time.Time
	Entries []Entry
	Wait    time.Duration // without entries: how long another reader has a batch; negative: there are no entries
}

// Rejection says why nothing is stored for an entry.
type Rejection struct{ Entry, Reason string }

// Reader identifies a reader of batches and its limits.
type Reader struct {
	Name     string
	Lease    time.Duration // after which other readers take over its batch
	Keep     int           // about how many rejected entries are kept
	MaxBytes int           // of an entry's fields; of a larger entry, only the size is read
}

// Next ends the batch with a number (0: none), if it has not ended, and returns the next one.
func (i *Intake) Next(ctx context.Context, by Reader, ended int64, rejected ...Rejection) (Batch, error) {
	args := []any{ended, by.Name, by.Lease.Milliseconds(), by.Keep, 1 + rand.IntN(maxStep), by.MaxBytes}
	for _, r := range rejected {
		args = append(args, r.Entry, r.Reason)
	}
	reply, err := i.run(ctx, nextScript, args)
	if err != nil {
		return Batch{}, err
	}
	b := Batch{Now: reply.Time()}
	number, wait := reply.Text(), reply.Int()
	b.Wait = time.Duration(wait) * time.Millisecond
	if b.Number, err = strconv.ParseInt(number, 10, 64); err != nil {
		reply.Fail("the number of a batch is %q", number)
	}
	for reply.More() {
		entry := reply.List()
		e := Entry{ID: entry.Text(), Fields: entry.Pairs()}
		if entry.More() {
			e.Bytes = entry.Count()
		}
		b.Entries = append(b.Entries, e)
		if err := entry.End(); err != nil {
			return Batch{}, err
		}
	}
	return b, reply.End()
}

// Plan records what happens to the entries of a batch, and returns the valid plan: the first one for this batch. If
// plan is empty, Plan only reads it.
func (i *Intake) Plan(ctx context.Context, number int64, plan string) (string, error) {
	reply, err := i.run(ctx, planScript, []any{number, plan})
	if err != nil {
		return "", err
	}
	how, valid := reply.Text(), reply.Text()
	if how == "ended" {
		return "", ErrEnded
	}
	return valid, reply.End()
}

// Await waits for an entry, or for some time. It occupies a connection of the client for that long, even if ctx ends sooner.
func (i *Intake) Await(ctx context.Context, most time.Duration) error {
	key := i.client.PrefixKey(script.Entries)
	_, err := script.RunAbandonable(ctx, i.client, func(ctx context.Context) (struct{}, error) {
		err := i.client.Redis().XRead(ctx, &redis.XReadArgs{Streams: []string{key, "0"}, Count: 1, Block: most}).Err()
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		return struct{}{}, err
	})
	return err
}

// Glance describes how full the inbox is.
type Glance struct {
	Now      time.Time
	Length   int64
	First    Entry // its ID; "" if there is none
	Rejected int64
}

// Oldest returns how long the first entry has waited; 0 if there is none, or if its time is unknown.
func (g Glance) Oldest() time.Duration {
	at, known := g.First.Time(g.Now)
	if !known {
		return 0
	}
	return max(0, g.Now.Sub(at))
}

// Glance returns how full the inbox is.
func (i *Intake) Glance(ctx context.Context) (Glance, error) {
	reply, err := i.run(ctx, glanceScript, nil)
	if err != nil {
		return Glance{}, err
	}
	g := Glance{Now: reply.Time(), Length: reply.Int(), First: Entry{ID: reply.Text()}, Rejected: reply.Int()}
	return g, reply.End()
}

// Page sizes: Redis builds a reply as a whole, and a waiting entry may have several MiB; a rejected entry has 64 KiB at most.
const (
	waitingPage  = 10
	maxWaiting   = 8 << 20 // bytes after which Waiting ends
	rejectedPage = 100
)

// Rejected returns the last rejected entries, the newest first.
func (i *Intake) Rejected(ctx context.Context, most int64) ([]Entry, error) {
	key := i.client.PrefixKey(script.RejectedEntries)
	return i.pages(ctx, "+", most, rejectedPage, math.MaxInt, func(ctx context.Context, from string, count int64) *redis.XMessageSliceCmd {
		return i.client.Redis().XRevRangeN(ctx, key, from, "-", count)
	})
}

// Waiting returns the first waiting entries. It returns fewer if they are large.
func (i *Intake) Waiting(ctx context.Context, most int64) ([]Entry, error) {
	key := i.client.PrefixKey(script.Entries)
	return i.pages(ctx, "-", most, waitingPage, maxWaiting, func(ctx context.Context, from string, count int64) *redis.XMessageSliceCmd {
		return i.client.Redis().XRangeN(ctx, key, from, "+", count)
	})
}

// pages reads up to so many entries from an id on, in pages, and ends after the page that reaches some bytes.
func (i *Intake) pages(
	ctx context.Context, from string, most, page int64, bytes int, read func(ctx context.Context, from string, count int64) *redis.XMessageSliceCmd,
) (entries []Entry, err error) {
	for most > 0 && bytes > 0 {
		count := min(page, most)
		chunk, err := script.RunAbandonable(ctx, i.client, func(ctx context.Context) ([]Entry, error) {
			return entriesOf(read(ctx, from, count).Result())
		})
		if err != nil {
			return entries, err
		}
		entries = append(entries, chunk...)
		if len(chunk) < int(count) || chunk[count-1].ID == lastID {
			break
		}
		for _, e := range chunk {
			for _, f := range e.Fields {
				bytes -= len(f[0]) + len(f[1])
			}
		}
		from, most = "("+chunk[count-1].ID, most-count
	}
	return entries, nil
}

func entriesOf(found []redis.XMessage, err error) ([]Entry, error) {
	entries := make([]Entry, len(found))
	for n, m := range found {
		entries[n].ID = m.ID
		for name, value := range m.Values {
			text, _ := value.(string)
			entries[n].Fields = append(entries[n].Fields, [2]string{name, text})
		}
	}
	return entries, err
}

func (i *Intake) run(ctx context.Context, s *script.Script, args []any) (script.Reply, error) {
	keys := i.client.PrefixKeys(s)
	if err := i.client.Check(ctx, keys[0]); err != nil {
		return script.Reply{}, err
	}
	return i.client.Run(ctx, script.Call{Script: s, Partition: -1, Keys: keys, Args: args})
}
