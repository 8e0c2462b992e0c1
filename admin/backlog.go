package admin

import (
	"context"
	"fmt"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
)

// Backlog is what waits in a topic, at a moment: what is cheap enough to count often, for
// many topics. The fields mean what they mean in TopicStats.
type Backlog struct {
	Topic      string
	At         time.Time
	Partitions int

	Scheduled int
	Due       int
	OldestDue time.Time
	Keys      int

	// Overdue is how long the longest waiting due message has waited, for being given to the
	// groups or, in the queue of one, for a consumer. Groups that are paused do not count: it
	// is 0 if no message waits, or only for them.
	Overdue time.Duration

	Paused bool // all groups together
	Groups []GroupBacklog
}

// GroupBacklog is what a consumer group has before it in a topic. The fields mean what they
// mean in GroupStats.
type GroupBacklog struct {
	Group string
	State GroupState

	Queued       int
	Retrying     int
	InDelivery   int
	Expired      int
	Dead         int
	OldestQueued time.Time

	// Overdue is how long the longest waiting due message has waited for this group, also one
	// that is still Due in the topic. 0 if none waits, or the group is paused or not active.
	Overdue time.Duration

	Paused bool // by its own pause or that of all groups

	// Consumers is how many are alive: all of them look after each partition, so it is the
	// number of the partition that knows the most.
	Consumers int
}

// Backlogs returns the backlogs of all topics of the prefix, sorted by name. It asks Redis in
// few round trips, and costs it some 20 µs for each partition and 10 µs for each group of one. The
// error says why a topic could not be read, and how many; the list has all the others, also when
// a master of a Cluster does not answer before ctx ends. That with the list of topics must.
func (a *Admin) Backlogs(ctx context.Context) ([]Backlog, error) {
	topics, err := inspect.Topics(ctx, a.store)
	if err != nil {
		return nil, wrap(err, "list topics")
	}
	list := make([]Backlog, 0, len(topics))
	for i, g := range inspect.Gauges(ctx, a.store, topics) {
		switch {
		case g.Err == nil:
			list = append(list, backlogOf(topics[i].Name, g))
		case err == nil:
			err = fmt.Errorf("the first is %q: %w", topics[i].Name, g.Err)
		}
	}
	return list, wrap(err, "backlogs: %d of %d topics could not be read", len(topics)-len(list), len(topics))
}

func backlogOf(topic string, g inspect.TopicGauge) Backlog {
	b := Backlog{
		Topic: topic, At: g.Partitions[0].Now, Partitions: len(g.Partitions),
		Paused: pauseOf(g.Roster, redisdelay.AllGroups) != nil,
	}
	for _, p := range g.Partitions {
		b.Scheduled += p.Scheduled
		b.Due += p.Due
		b.OldestDue = earliest(b.OldestDue, p.OldestDue)
		b.Keys += p.Keys
	}
	var w waiting
	for _, name := range g.Roster.All() {
		group := groupBacklog(name, g)
		if group.State == GroupActive && !group.Paused {
			group.Overdue = since(earliest(b.OldestDue, group.OldestQueued), b.At)
		}
		w.add(group.State, group.Paused, group.OldestQueued)
		b.Groups = append(b.Groups, group)
	}
	b.Overdue = w.overdue(b.Paused, b.OldestDue, b.At)
	return b
}

func groupBacklog(name string, topic inspect.TopicGauge) GroupBacklog {
	b := GroupBacklog{Group: name}
	for _, p := range topic.Partitions {
		g := p.Groups[name]
		b.Queued += g.Queued
		b.Retrying += g.Later
		b.InDelivery += g.InDelivery
		b.Expired += g.Expired
		b.Dead += g.Dead
		b.OldestQueued = earliest(b.OldestQueued, g.OldestQueued)
		b.Consumers = max(b.Consumers, g.Consumers)
	}
	b.State = stateOf(name, topic.Roster, b.Queued+b.Retrying+b.InDelivery+b.Dead)
	b.Paused = b.State == GroupActive && pauseOf(topic.Roster, name) != nil
	return b
}
