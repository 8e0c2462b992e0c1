package admin

import (
	"context"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// step is some messages of one partition, in one place of one group.
type step struct {
	partition *queue.Partition
	group     *queue.Group // its name is "" in Scheduled
	name      string       // of the group
	place     inspect.Place
	entries   []inspect.PageEntry
	now       time.Time // Redis's clock
	cursor    string
}

// walk goes through all that a query matches when it begins, in steps of one partition and one
// group each, in no order among these, and calls do with each step. What comes meanwhile is
// included only if it is before the last of the others: else an act beside busy publishers and
// consumers would never end. The cursor of a step is where to go on after it: for acts. With
// bytes above 0, entries have their bodies, up to so many bytes a step. A step may have no entries.
func (a *Admin) walk(ctx context.Context, topic string, q Query, bytes int, do func(step) error) error {
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
	if err := limit(ctx, sources); err != nil {
		return err
	}
	for _, s := range sources {
		at := place{s.number, s.name, s.request.Place}
		from := place{c.Partition, string(c.Group), c.Place}
		if c.Place != "" && at.before(from) {
			continue
		}
		if at == from {
			s.request.From = c.position()
		}
		s.request.Bytes = bytes
		if err := s.walk(ctx, newCursor(walked, topic, q), do); err != nil {
			return err
		}
	}
	return nil
}

// limit makes sources end where they end now.
func limit(ctx context.Context, sources []source) error {
	return each(len(sources), func(i int) error {
		s := &sources[i]
		before, err := inspect.End(ctx, s.group, s.request.Place)
		s.request.Before = min(s.request.Before, before)
		return err
	})
}

// place is what a source is of, in the order of sources.
type place struct {
	partition int
	group     string
	in        inspect.Place
}

func (p place) before(other place) bool {
	if p.partition != other.partition {
		return p.partition < other.partition
	}
	return p.group < other.group
}

// walk calls do with each step of a source.
func (s source) walk(ctx context.Context, c cursor, do func(step) error) error {
	c.Partition, c.Group, c.Place = s.number, name(s.name), s.request.Place
	for {
		start := time.Now()
		page, err := inspect.ReadPage(ctx, s.group, s.request)
		if err != nil {
			return err
		}
		err = do(step{
			partition: s.partition, group: s.group, name: s.name, place: s.request.Place,
			entries: page.Entries, now: page.Now, cursor: c.at(page.Next).String(),
		})
		if err != nil || !page.More {
			return err
		}
		s.request.From = page.Next
		rest(ctx, time.Since(start))
	}
}

// maxRest limits a rest: a call that took longer had to wait.
const maxRest = 5 * time.Millisecond

// rest waits for as long as the calls before have taken, so that what goes through many
// messages leaves half of Redis to publishers and consumers.
func rest(ctx context.Context, took time.Duration) {
	timer := time.NewTimer(min(took, maxRest))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done(): // the next call ends with it
	}
}
