package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// The default and the maximum of UpcomingQuery.Buckets, and the default of its Span.
const (
	DefaultBuckets = 60
	MaxBuckets     = 100
	DefaultSpan    = time.Hour
)

// UpcomingQuery is what Upcoming counts. The zero value counts the scheduled messages of the next hour, by minutes.
type UpcomingQuery struct {
	// Span is how far ahead to count, at least a millisecond for each bucket. Default: DefaultSpan.
	Span time.Duration

	// Buckets is the number of equal parts of Span, 1 to MaxBuckets. Default: DefaultBuckets.
	Buckets int

	// Group adds the messages of a consumer group: in its queue, also for a later retry or in line for their ordering
	// keys, and in delivery. "": only messages that no group has been given yet.
	Group string
}

// Bucket is one interval of Upcoming: the messages due after After and no later than Until.
type Bucket struct {
	After, Until time.Time
	Messages     int
	Retries      int // the part of Messages that is retried or postponed
}

// Upcoming are the numbers of messages of a topic that are due, and that become due in each interval.
type Upcoming struct {
	Topic, Group string
	At           time.Time // Redis's clock

	DueNow     int // due, but not claimed
	InDelivery int // held by the group's consumers; 0 without a Group
	Buckets    []Bucket
	Later      int // due after the last bucket
}

// Total returns how many messages become due in all buckets.
func (u Upcoming) Total() int {
	sum := 0
	for _, b := range u.Buckets {
		sum += b.Messages
	}
	return sum
}

// Until returns the end of the last bucket.
func (u Upcoming) Until() time.Time {
	if len(u.Buckets) == 0 {
		return u.At
	}
	return u.Buckets[len(u.Buckets)-1].Until
}

// Upcoming counts the messages of a topic that become due in each of the next buckets of time. The cost does not depend
// on the number of messages: about 10 µs of Redis for each partition and bucket, twice that with a Group. A message
// that moves meanwhile may count twice or not at all.
func (a *Admin) Upcoming(ctx context.Context, topic string, q UpcomingQuery) (Upcoming, error) {
	q.setDefaults()
	u, err := a.upcoming(ctx, topic, q)
	return u, wrap(err, "upcoming messages of %q", topic)
}

func (q *UpcomingQuery) setDefaults() {
	if q.Span == 0 {
		q.Span = DefaultSpan
	}
	if q.Buckets == 0 {
		q.Buckets = DefaultBuckets
	}
}

func (q UpcomingQuery) validate() error {
	switch {
	case q.Buckets < 1 || q.Buckets > MaxBuckets:
		return &QueryError{"Buckets", fmt.Sprintf("is %d, want 1 to %d", q.Buckets, MaxBuckets)}
	case q.Span.Milliseconds() < int64(q.Buckets):
		return &QueryError{"Span", fmt.Sprintf("is %s, want at least a millisecond for each of %d buckets", q.Span, q.Buckets)}
	}
	return nil
}

func (a *Admin) upcoming(ctx context.Context, name string, q UpcomingQuery) (Upcoming, error) {
	if err := q.validate(); err != nil {
		return Upcoming{}, err
	}
	t, err := a.open(ctx, name)
	if err != nil {
		return Upcoming{}, err
	}
	if q.Group != "" && !slices.Contains(t.groupList.All(), q.Group) {
		return Upcoming{}, fmt.Errorf("%w: %q", ErrGroupNotFound, q.Group)
	}
	u := Upcoming{Topic: name, Group: q.Group, At: t.groupList.Now, Buckets: q.buckets(t.groupList.Now)}
	var c counting
	for n := range t.partitions {
		c.add(t.Partition(n), &u)
	}
	if err := c.read(ctx, a.store); err != nil {
		return Upcoming{}, err
	}
	for i := range u.Buckets {
		u.Buckets[i].Messages += u.Buckets[i].Retries
	}
	return u, nil
}

// buckets returns the buckets from a time on, with borders at whole milliseconds.
func (q UpcomingQuery) buckets(from time.Time) []Bucket {
	span, number := q.Span.Milliseconds(), int64(q.Buckets)
	border := func(i int64) time.Time {
		return time.UnixMilli(from.UnixMilli() + span/number*i + span%number*i/number)
	}
	list := make([]Bucket, number)
	for i := range number {
		list[i] = Bucket{After: border(i), Until: border(i + 1)}
	}
	return list
}

// counting has the ranges to count, and the destinations of the counts.
type counting struct {
	ranges []inspect.Range
	into   []*int
}

// add adds the ranges of a partition.
func (c *counting) add(p *queue.Partition, u *Upcoming) {
	c.spread(p.Group(""), inspect.InScheduled, u, func(b *Bucket) *int { return &b.Messages })
	if u.Group == "" {
		return
	}
	group := p.Group(u.Group)
	c.spread(group, inspect.InQueue, u, func(b *Bucket) *int { return &b.Retries })
	c.count(inspect.Range{Group: group, Place: inspect.InLine, Before: inspect.NoEnd}, &u.DueNow)
	c.count(inspect.Range{Group: group, Place: inspect.InUnack, Before: inspect.NoEnd}, &u.InDelivery)
}

// spread counts the messages of a place by due time: due now, due in each bucket, and due later.
func (c *counting) spread(g *queue.Group, place inspect.Place, u *Upcoming, into func(*Bucket) *int) {
	// Scores are whole milliseconds, so "due until" a time means "due before" the next millisecond.
	next := func(t time.Time) int64 { return t.UnixMilli() + 1 }
	c.count(inspect.Range{Group: g, Place: place, Before: next(u.At)}, &u.DueNow)
	for i := range u.Buckets {
		b := &u.Buckets[i]
		c.count(inspect.Range{Group: g, Place: place, From: inspect.AtTime(next(b.After)), Before: next(b.Until)}, into(b))
	}
	c.count(inspect.Range{Group: g, Place: place, From: inspect.AtTime(next(u.Until())), Before: inspect.NoEnd}, &u.Later)
}

func (c *counting) count(r inspect.Range, into *int) {
	c.ranges, c.into = append(c.ranges, r), append(c.into, into)
}

// read counts all ranges.
func (c *counting) read(ctx context.Context, s *queue.Store) error {
	counts, err := inspect.CountRanges(ctx, s, c.ranges)
	for i, n := range counts {
		*c.into[i] += n
	}
	return err
}
