package inspect

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Place is a sorted set of messages in a partition, or a part of such a set.
type Place string

// The places. Each group has all of them except InScheduled. The queue of a group has two places: InLine has the messages that
// are due and wait for their ordering key, and InQueue has the others. In Redis, the scores of InLine are script.InLine above
// the due times. In this package, they are the due times.
const (
	InScheduled Place = "scheduled"
	InQueue     Place = "queue"
	InLine      Place = "line"
	InUnack     Place = "unack"
	InDead      Place = "dead"
)

// set is the sorted set that the messages are in.
func (p Place) set() string {
	if p == InLine {
		return string(InQueue)
	}
	return string(p)
}

// base is the difference between the scores in Redis and those in this package.
func (p Place) base() int64 {
	if p == InLine {
		return script.InLine
	}
	return 0
}

// from returns a position as the start of a range of the sorted set.
func (p Place) from(at Position) (score string, err error) {
	switch {
	case at.Score == "" && p == InLine:
		return strconv.FormatInt(script.InLine, 10), nil
	case at.Score == "":
		return "-inf", nil
	case p == InLine:
		ms, err := script.Score(at.Score)
		return strconv.FormatInt(ms+script.InLine, 10), err
	}
	return at.Score, nil
}

// end returns a time as the end of a range of the sorted set, within the place.
func (p Place) end(before int64) string {
	if before == NoEnd && p != InQueue {
		return "+inf"
	}
	if p == InQueue || p == InLine {
		before = min(before, script.InLine) // all due times are earlier
	}
	return strconv.FormatInt(before+p.base(), 10)
}

// shown converts a score of the sorted set to that of a Position.
func (p Place) shown(score string) (string, error) {
	if p != InLine || score == "" {
		return score, nil
	}
	ms, err := script.Score(score)
	return strconv.FormatInt(ms-script.InLine, 10), err
}

// Position is a position in a sorted set, whose order is by score, then by the bytes of the id. The zero value is the
// beginning. A Position without an ID is before all messages with its score.
type Position struct {
	Score string // ms, as Redis writes it: another program may have written a fraction
	ID    string
}

// AtTime returns the position before all messages with a score, in ms.
func AtTime(ms int64) Position { return Position{Score: strconv.FormatInt(ms, 10)} }

// Next returns the position right after this one.
func (p Position) Next() Position { return Position{p.Score, p.ID + "\x00"} }

// NoEnd is a PageRequest.Before without an end.
const NoEnd = math.MaxInt64

// PageRequest asks for some of the messages in a place.
type PageRequest struct {
	Place       Place
	From        Position // included
	Before      int64    // ms, not included; NoEnd for no end
	Limit       int      // entries at most, 1 to MaxMessages
	KeyPrefix   string   // only messages with such a key
	Reason      string   // only those whose reason contains this; for InDead
	MinAttempts int
	Bytes       int // text to return at most, bodies included, unless the first has more; 0: no bodies
}

// PageEntry is a message in a place.
type PageEntry struct {
	ID       string
	Score    int64  // ms
	Seen     Seen   // as it is in the sorted set
	Receipt  string // the attempts entry; "1" if there is none
	Attempts int    // deliveries that count, including one under way
	Reason   string
	Size     int    // bytes of the body
	Body     []byte // nil if it is missing, or was not requested
	Metadata []byte // of the last Nack of the group; nil if there is none, or it was not requested
	Position Position
}

// Page is the result of ReadPage.
type Page struct {
	Entries []PageEntry
	Next    Position // after the last message that was read
	More    bool     // there may be more from Next on
	Now     time.Time
}

// ReadPage returns messages of a place of the group, or of the partition for InScheduled. It reads up to MaxMessages messages,
// so with a filter it may return few or no messages although there are More.
func ReadPage(ctx context.Context, g *queue.Group, r PageRequest) (Page, error) {
	bytes, content := queue.MaxReplyBytes, ""
	if r.Bytes > 0 {
		bytes, content = min(r.Bytes, queue.MaxReplyBytes), "bodies"
	}
	from, err := r.Place.from(r.From)
	if err != nil {
		return Page{}, err
	}
	reply, err := g.Run(ctx, pageScript, []any{
		r.Place.set(), from, r.From.ID, r.Place.end(r.Before),
		r.Limit, r.KeyPrefix, r.Reason, r.MinAttempts, bytes, content,
	})
	if err != nil {
		return Page{}, err
	}
	return parsePage(reply, r.Place, r.From)
}

// Count counts the messages in a place of the group with scores from a position's on and
// before another, in ms.
func Count(ctx context.Context, g *queue.Group, place Place, from Position, before int64) (int, error) {
	count, _, err := count(ctx, g, place, from, before, "")
	return count, err
}

// CountBefore counts the messages in a place of the group that come before a message with a score, in ms,
// whether or not that is in the place. Of those with the same score, it counts up to MaxMessages.
func CountBefore(ctx context.Context, g *queue.Group, place Place, score int64, id string) (int, error) {
	count, _, err := count(ctx, g, place, Position{}, score, id)
	return count, err
}

// End is the lowest time, in ms, that is above all scores in a place of the group.
func End(ctx context.Context, g *queue.Group, place Place) (before int64, err error) {
	_, last, err := count(ctx, g, place, Position{}, NoEnd, "")
	if err != nil || last == "" {
		return 0, err
	}
	ms, err := script.Score(last)
	return ms - place.base() + 1, err
}

func count(ctx context.Context, g *queue.Group, place Place, from Position, before int64, id string) (count int, last string, err error) {
	call, err := Range{g, place, from, before}.call(id)
	if err != nil {
		return 0, "", err
	}
	return countIn(g.Partition().Client().Run(ctx, call))
}

// Range is the messages in a place of a group with scores from a position's on and before another, in ms.
type Range struct {
	Group  *queue.Group
	Place  Place
	From   Position
	Before int64
}

// CountRanges is Count for many ranges, in few round trips.
func CountRanges(ctx context.Context, s *queue.Store, ranges []Range) ([]int, error) {
	calls := make([]script.Call, len(ranges))
	counts := make([]int, len(ranges))
	var err error
	for i, r := range ranges {
		if calls[i], err = r.call(""); err != nil {
			return nil, err
		}
	}
	for i, a := range s.RunMany(ctx, calls) {
		if counts[i], _, err = countIn(a.Reply, a.Err); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

func (r Range) call(id string) (script.Call, error) {
	start, err := r.Place.from(r.From)
	if err != nil {
		return script.Call{}, err
	}
	p := r.Group.Partition()
	args := []any{r.Place.set(), start, r.Place.end(r.Before), id}
	return p.Call(countRangeScript, p.Keys(countRangeScript, r.Group.Name()), args), nil
}

func countIn(reply script.Reply, err error) (count int, last string, _ error) {
	if err != nil {
		return 0, "", err
	}
	count, last = reply.Count(), reply.Text()
	return count, last, reply.End()
}

func parsePage(reply script.Reply, place Place, from Position) (Page, error) {
	page := Page{Now: reply.Time(), More: reply.Int() == 1, Next: from}
	if last := (Position{reply.Text(), reply.Text()}); last.Score != "" {
		shown, err := place.shown(last.Score)
		if err != nil {
			return Page{}, err
		}
		page.Next = Position{shown, last.ID}.Next()
	}
	for rows := reply.List(); rows.More(); {
		entry := PageEntry{ID: rows.Text()}
		entry.Seen = Seen{entry.ID, rows.Text()}
		shown, err := place.shown(entry.Seen.Score)
		ms, wrong := script.Score(shown)
		if err != nil || wrong != nil {
			rows.Fail("message %q has the score %q", entry.ID, entry.Seen.Score)
		}
		entry.Score, entry.Position = ms, Position{shown, entry.ID}
		entry.Receipt, entry.Attempts, entry.Reason = rows.Text(), rows.Count(), string(rows.Bytes())
		entry.Size, entry.Body, entry.Metadata = rows.Count(), rows.Bytes(), rows.Bytes()
		page.Entries = append(page.Entries, entry)
	}
	return page, reply.End()
}
