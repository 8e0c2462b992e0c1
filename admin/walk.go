package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// source has the messages of one place that a query matches: the scheduled messages of a partition, or a queue or another
// sorted set of a group in a partition.
type source struct {
	group   *queue.Group // its name is "" in Scheduled
	set     Set
	request inspect.PageRequest
}

// partition returns the number of the partition.
func (s source) partition() int { return s.group.Partition().Number() }

// count counts the messages of the source.
func (s source) count(ctx context.Context, filters bool) (int, error) {
	if !filters {
		return inspect.Count(ctx, s.group, s.request.Place, s.request.From, s.request.Before)
	}
	for sum := 0; ; {
		page, err := inspect.ReadPage(ctx, s.group, s.request)
		sum += len(page.Entries)
		if err != nil || !page.More {
			return sum, err
		}
		s.request.From = page.Next
	}
}

// topic is a listed topic, with its groups at the time it was opened.
type topic struct {
	*queue.Topic
	name       string
	partitions int
	groupList  inspect.GroupList // of the first partition, which decides
}

// open reads a topic.
func (a *Admin) open(ctx context.Context, name string) (topic, error) {
	if name == "" {
		return topic{}, redisdelay.ErrEmptyTopic
	}
	t := topic{Topic: a.store.Topic(name), name: name}
	var err error
	if err = t.RequireListedNow(ctx); err != nil {
		return topic{}, err
	}
	if t.partitions, err = t.Partitions(ctx); err != nil {
		return topic{}, err
	}
	t.groupList, err = inspect.ReadGroupList(ctx, t.Partition(0))
	return t, err
}

// sources returns the places with messages that a query may match, by partition, then by group.
func (a *Admin) sources(ctx context.Context, name string, q Query) ([]source, error) {
	t, err := a.open(ctx, name)
	if err != nil {
		return nil, err
	}
	groups := t.groupList.Groups
	if q.Group != "" {
		if !slices.Contains(t.groupList.All(), q.Group) {
			return nil, fmt.Errorf("%w: %q", ErrGroupNotFound, q.Group)
		}
		groups = []string{q.Group}
	}
	var list []source
	for n := range t.partitions {
		list = append(list, q.sourcesIn(t.Partition(n), groups, t.groupList.Now)...)
	}
	return list, nil
}

func (q Query) sourcesIn(p *queue.Partition, names []string, now time.Time) []source {
	var list []source
	add := func(name string, place inspect.Place) {
		list = append(list, source{p.Group(name), q.Set, q.request(place, now)})
	}
	if q.Set == Scheduled || q.Set == Waiting && q.Group == "" {
		add("", inspect.InScheduled)
	}
	for _, name := range names {
		for _, place := range placesOf[q.Set] {
			add(name, place)
		}
	}
	return list
}

// placesOf returns the places of a group, InLine before InQueue: messages move from the first to the second, and a
// message that moves during the walk must not be missed.
var placesOf = map[Set][]inspect.Place{
	Waiting: {inspect.InLine, inspect.InQueue}, InDelivery: {inspect.InUnack}, Dead: {inspect.InDead},
}

// atOnce is the number of concurrent calls to Redis.
const atOnce = 16

// each calls do with 0 to n-1, atOnce at a time, and returns the first error. After an error, it starts no more calls.
func each(n int, do func(i int) error) error { return eachOf(n, atOnce, do) }

// eachOf is each with another number of concurrent calls.
func eachOf(n, limit int, do func(i int) error) error {
	var calls errgroup.Group
	calls.SetLimit(limit)
	var failed atomic.Bool
	for i := 0; i < n && !failed.Load(); i++ {
		calls.Go(func() error {
			if failed.Load() {
				return nil
			}
			err := do(i)
			if err != nil {
				failed.Store(true)
			}
			return err
		})
	}
	return calls.Wait()
}

// stream reads a source.
type stream struct {
	source
	head  []inspect.PageEntry // read and not used yet
	score float64             // of the first one
	more  bool                // there may be more than head
	took  time.Duration       // how long the last page took; 0 before the first
}

// fill reads until there is a message or the source ends.
func (s *stream) fill(ctx context.Context) error {
	for len(s.head) == 0 && s.more {
		if s.took > 0 {
			throttle(ctx, s.took)
		}
		start := time.Now()
		page, err := inspect.ReadPage(ctx, s.group, s.request)
		if err != nil {
			return err
		}
		s.took = time.Since(start)
		s.head, s.more, s.request.From = page.Entries, page.More, page.Next
	}
	return s.peek()
}

func (s *stream) peek() (err error) {
	if len(s.head) > 0 {
		s.score, err = strconv.ParseFloat(s.head[0].Position.Score, 64)
	}
	return err
}

// merger merges the messages of several sources, ordered by score, id and group.
type merger struct {
	streams []*stream // once begun, those that have a head, sorted
	begun   bool
}

// readAhead is the maximum size of the bodies that are read ahead, besides one body of each source.
const readAhead = 32 << 20

// newMerger returns a merger that starts at a cursor. With many sources, it reads small pages.
func newMerger(sources []source, c cursor, limit int) *merger {
	m := &merger{}
	for _, s := range sources {
		s.request.Limit = min(max(2*limit/len(sources), 10), pageSize)
		s.request.Bytes = min(max(readAhead/len(sources), 1), pageBytes)
		if c.Score != "" {
			s.request.From = c.position()
			if s.group.Name() <= string(c.Group) {
				s.request.From = s.request.From.Next()
			}
		}
		m.streams = append(m.streams, &stream{source: s, more: true})
	}
	return m
}

// begin reads the first page of each source.
func (m *merger) begin(ctx context.Context) error {
	m.begun = true
	err := each(len(m.streams), func(i int) error { return m.streams[i].fill(ctx) })
	if err != nil {
		return err
	}
	m.streams = slices.DeleteFunc(m.streams, func(s *stream) bool { return len(s.head) == 0 })
	slices.SortFunc(m.streams, compareHeads)
	return nil
}

// next returns the next message and its stream, which is nil at the end. The next call invalidates the message.
func (m *merger) next(ctx context.Context) (*stream, error) {
	if !m.begun {
		if err := m.begin(ctx); err != nil {
			return nil, err
		}
	} else if len(m.streams) > 0 {
		first := m.streams[0]
		first.head = first.head[1:]
		if err := first.fill(ctx); err != nil {
			return nil, err
		}
		m.streams = slices.Delete(m.streams, 0, 1)
		if len(first.head) > 0 {
			at, _ := slices.BinarySearchFunc(m.streams, first, compareHeads)
			m.streams = slices.Insert(m.streams, at, first)
		}
	}
	if len(m.streams) == 0 {
		return nil, nil
	}
	return m.streams[0], nil
}

// compareHeads compares the first messages of two streams.
func compareHeads(a, b *stream) int {
	return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.head[0].ID, b.head[0].ID), cmp.Compare(a.group.Name(), b.group.Name()))
}

// step has some messages of one place of one group in one partition.
type step struct {
	source
	entries []inspect.PageEntry
	now     time.Time // Redis's clock
	cursor  string
}

// walk calls do with the messages that a query matches when the walk begins, in steps, by partition and then by group. A
// message that arrives meanwhile is included only if it is before the last of those; otherwise the walk might never end.
// An operation continues after a step from the cursor of that step. Entries have no bodies. A step may have no entries.
func (a *Admin) walk(ctx context.Context, topic string, q Query, do func(step) error) error {
	q.setDefaults()
	q.Limit = DefaultLimit
	if err := q.validate(); err != nil {
		return err
	}
	c, err := parseCursor(walked, topic, q)
	if err != nil {
		return err
	}
	sources, err := a.sources(ctx, topic, q)
	if err != nil {
		return err
	}
	if err := freezeEnds(ctx, sources); err != nil {
		return err
	}
	for _, s := range sources {
		at := sourceKey{s.partition(), s.group.Name(), s.request.Place}
		from := sourceKey{c.Partition, string(c.Group), c.Place}
		if c.Place != "" && at.before(from) {
			continue
		}
		if at == from {
			s.request.From = c.position()
		}
		if err := s.walk(ctx, newCursor(walked, topic, q), do); err != nil {
			return err
		}
	}
	return nil
}

// freezeEnds makes sources end where they end now. But meanwhile, messages may pass from scheduled to a line or a
// queue, and from a line to its queue. So a line ends no sooner than scheduled, and a queue no sooner than both; and
// the ends are read in that order, so that no message passes unseen from one to the other.
func freezeEnds(ctx context.Context, sources []source) error {
	for _, some := range []inspect.Place{inspect.InScheduled, inspect.InLine, inspect.InQueue, inspect.InUnack, inspect.InDead} {
		err := each(len(sources), func(i int) error {
			s := &sources[i]
			if s.request.Place != some {
				return nil
			}
			before, err := inspect.End(ctx, s.group, s.request.Place)
			s.request.Before = min(s.request.Before, before)
			return err
		})
		if err != nil {
			return err
		}
	}
	scheduled, line := map[int]int64{}, int64(0) // scheduled by partition
	for i := range sources {                     // those of a partition begin with scheduled, those of a group with its line
		r := &sources[i].request
		switch r.Place {
		case inspect.InScheduled:
			scheduled[sources[i].partition()] = r.Before
		case inspect.InLine:
			r.Before = max(r.Before, scheduled[sources[i].partition()])
			line = r.Before
		case inspect.InQueue:
			r.Before = max(r.Before, line)
		}
	}
	return nil
}

// sourceKey identifies a source. Its order is that of sources.
type sourceKey struct {
	partition int
	group     string
	in        inspect.Place
}

func (k sourceKey) before(other sourceKey) bool {
	if k.partition != other.partition {
		return k.partition < other.partition
	}
	if k.group != other.group {
		return k.group < other.group
	}
	return k.in == inspect.InLine && other.in == inspect.InQueue
}

// walk calls do with each step of a source.
func (s source) walk(ctx context.Context, c cursor, do func(step) error) error {
	c.Partition, c.Group, c.Place = s.partition(), encodedName(s.group.Name()), s.request.Place
	for {
		start := time.Now()
		page, err := inspect.ReadPage(ctx, s.group, s.request)
		if err != nil {
			return err
		}
		err = do(step{source: s, entries: page.Entries, now: page.Now, cursor: c.at(page.Next).String()})
		if err != nil || !page.More {
			return err
		}
		s.request.From = page.Next
		throttle(ctx, time.Since(start))
	}
}

// maxThrottle limits the pause of throttle: a call that took longer had to wait for other calls.
const maxThrottle = 5 * time.Millisecond

// throttle pauses for as long as the previous calls have taken, so that a walk over many messages leaves half of Redis's
// time to publishers and consumers.
func throttle(ctx context.Context, took time.Duration) {
	backoff.Sleep(ctx, min(took, maxThrottle)) // the next call ends with ctx
}
