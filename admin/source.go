package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
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
	request   queue.PageRequest
}

// count counts what the query matches.
func (s source) count(ctx context.Context, filters bool) (int, error) {
	if !filters {
		return s.group.Count(ctx, s.request.Place, s.request.From, s.request.Before)
	}
	for sum := 0; ; {
		page, err := s.group.Page(ctx, s.request)
		sum += len(page.Entries)
		if err != nil || !page.More {
			return sum, err
		}
		s.request.From = page.Next
	}
}

// topic returns a topic that is on the list, and the first partition's roster.
func (a *Admin) topic(ctx context.Context, name string) (*queue.Topic, queue.Roster, error) {
	if name == "" {
		return nil, queue.Roster{}, redisdelay.ErrEmptyTopic
	}
	t := a.store.Topic(name)
	if _, err := t.Version(ctx); err != nil {
		return nil, queue.Roster{}, err
	}
	roster, err := t.Partition(0).Roster(ctx)
	return t, roster, err
}

// sources are where to look for what a query matches, by partition, then by group.
func (a *Admin) sources(ctx context.Context, topic string, q Query) ([]source, error) {
	t, roster, err := a.topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	names := roster.Groups
	if _, retired := roster.Retired[q.Group]; q.Group != "" {
		if !retired && !slices.Contains(names, q.Group) {
			return nil, fmt.Errorf("%w: %q", ErrGroupNotFound, q.Group)
		}
		names = []string{q.Group}
	}
	partitions, err := t.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	var list []source
	for n := range partitions {
		list = append(list, q.sourcesIn(t.Partition(n), n, names, roster.Now)...)
	}
	return list, nil
}

func (q Query) sourcesIn(p *queue.Partition, number int, names []string, now time.Time) []source {
	var list []source
	add := func(name string, place queue.Place) {
		list = append(list, source{number, p, name, p.Group(name), q.In, q.request(place, now)})
	}
	if q.In == Scheduled || q.In == Waiting && q.Group == "" {
		add("", queue.InScheduled)
	}
	if place, of := placeOf[q.In]; of {
		for _, name := range names {
			add(name, place)
		}
	}
	return list
}

var placeOf = map[Set]queue.Place{Waiting: queue.InQueue, InDelivery: queue.InUnack, Dead: queue.InDead}
