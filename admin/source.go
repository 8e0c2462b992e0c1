package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// source is one place of one group in one partition, or the scheduled messages of a
// partition, as far as a query matches them.
type source struct {
	number    int // of the partition
	partition *queue.Partition
	name      string // of the group; "" in Scheduled
	group     *queue.Group
	set       Set
	request   inspect.PageRequest
}

// count counts what the query matches.
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

// topic is a topic that is on the list, as it was when it was opened.
type topic struct {
	*queue.Topic
	name       string
	version    string
	partitions int
	roster     inspect.Roster // of the first partition, which decides
}

// open looks a topic up.
func (a *Admin) open(ctx context.Context, name string) (topic, error) {
	if name == "" {
		return topic{}, redisdelay.ErrEmptyTopic
	}
	t := topic{Topic: a.store.Topic(name), name: name}
	var err error
	if t.version, err = t.Version(ctx); err != nil {
		return topic{}, err
	}
	if t.partitions, err = t.Partitions(ctx); err != nil {
		return topic{}, err
	}
	t.roster, err = inspect.ReadRoster(ctx, t.Partition(0))
	return t, err
}

// sources are where to look for what a query matches, by partition, then by group.
func (a *Admin) sources(ctx context.Context, name string, q Query) ([]source, error) {
	t, err := a.open(ctx, name)
	if err != nil {
		return nil, err
	}
	groups := t.roster.Groups
	if q.Group != "" {
		if !slices.Contains(t.roster.All(), q.Group) {
			return nil, fmt.Errorf("%w: %q", ErrGroupNotFound, q.Group)
		}
		groups = []string{q.Group}
	}
	var list []source
	for n := range t.partitions {
		list = append(list, q.sourcesIn(t.Partition(n), n, groups, t.roster.Now)...)
	}
	return list, nil
}

func (q Query) sourcesIn(p *queue.Partition, number int, names []string, now time.Time) []source {
	var list []source
	add := func(name string, place inspect.Place) {
		list = append(list, source{number, p, name, p.Group(name), q.In, q.request(place, now)})
	}
	if q.In == Scheduled || q.In == Waiting && q.Group == "" {
		add("", inspect.InScheduled)
	}
	if place, of := placeOf[q.In]; of {
		for _, name := range names {
			add(name, place)
		}
	}
	return list
}

var placeOf = map[Set]inspect.Place{Waiting: inspect.InQueue, InDelivery: inspect.InUnack, Dead: inspect.InDead}
