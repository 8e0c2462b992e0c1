package admin

import (
	"fmt"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
)

// QueryError says which field of a Query cannot be used, and why.
type QueryError struct{ Field, Problem string }

func (e *QueryError) Error() string { return "query field " + e.Field + " " + e.Problem }

func (q *Query) setDefaults() {
	if q.In == "" {
		q.In = Scheduled
	}
	if q.Limit == 0 {
		q.Limit = DefaultLimit
	}
}

func (q Query) validate() error {
	switch q.In {
	case Scheduled, Waiting, InDelivery, Dead:
	default:
		return &QueryError{"In", fmt.Sprintf("is %q, want %q, %q, %q or %q", q.In, Scheduled, Waiting, InDelivery, Dead)}
	}
	switch {
	case q.In == Scheduled && q.Group != "":
		return &QueryError{"Group", "is set, but scheduled messages are of no group"}
	case q.In != Dead && q.Reason != "":
		return &QueryError{"Reason", "is set, but only dead letters have one"}
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

// filters tells whether the messages of a range have to be looked at.
func (q Query) filters() bool { return q.KeyPrefix != "" || q.Reason != "" || q.MinAttempts > 0 }

// pageSize is how many messages one call reads at most. Redis takes about half a
// millisecond for them, for which publishers and consumers wait.
const pageSize = 100

// request is what to ask one place for. now is Redis's clock: scheduled messages wait only
// once they are due.
func (q Query) request(place inspect.Place, now time.Time) inspect.PageRequest {
	from, before := q.bounds()
	if q.In == Waiting && place == inspect.InScheduled {
		before = min(before, now.UnixMilli()+1)
	}
	return inspect.PageRequest{
		Place: place, From: from, Before: before, Limit: pageSize,
		KeyPrefix: q.KeyPrefix, Reason: q.Reason, MinAttempts: q.MinAttempts,
	}
}
