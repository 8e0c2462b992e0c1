package admin

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Stats returns the statistics of a topic and its groups. The error is ErrTopicNotFound,
// redisdelay.ErrEmptyTopic, redisdelay.ErrProtocolTooNew, *redisdelay.KeyTypeError, or that of
// Redis.
func (a *Admin) Stats(ctx context.Context, topic string) (TopicStats, error) {
	s, err := a.stats(ctx, topic)
	return s, wrap(err, "statistics of %q", topic)
}

// topicsAtOnce is how many topics AllStats looks into at once.
const topicsAtOnce = 8

// AllStats returns the statistics of all topics of the prefix, sorted by name. A topic that cannot
// be read hides no other: its Err says why. The error is that of Topics, or of ctx once it has
// ended.
func (a *Admin) AllStats(ctx context.Context) ([]TopicStats, error) {
	topics, err := a.Topics(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]TopicStats, len(topics))
	slots := make(chan struct{}, topicsAtOnce)
	var calls sync.WaitGroup
	for i, t := range topics {
		if ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			s, err := a.Stats(ctx, t.Name)
			if err != nil {
				s = TopicStats{Topic: t.Name, Version: t.Version, Err: err}
			}
			all[i] = s
		})
	}
	calls.Wait()
	if ctx.Err() != nil {
		return nil, wrap(context.Cause(ctx), "statistics")
	}
	return slices.DeleteFunc(all, func(s TopicStats) bool { return errors.Is(s.Err, ErrTopicNotFound) }), nil // deleted meanwhile
}

func (a *Admin) stats(ctx context.Context, name string) (TopicStats, error) {
	t, err := a.open(ctx, name)
	if err != nil {
		return TopicStats{}, err
	}
	surveys := make([]inspect.Survey, t.partitions)
	err = each(len(surveys), func(i int) (err error) {
		surveys[i], err = inspect.ReadSurvey(ctx, t.Partition(i))
		return err
	})
	if err != nil {
		return TopicStats{}, err
	}
	s := TopicStats{
		Topic: name, Version: t.version, At: surveys[0].Now, Partitions: t.partitions,
		Pause: pauseOf(t.roster, redisdelay.AllGroups),
	}
	for _, survey := range surveys {
		s.add(survey)
	}
	if s.Memory, err = t.memory(ctx); err != nil {
		return TopicStats{}, err
	}
	s.Groups, err = t.stats(ctx)
	return s, err
}

// memory estimates what the topic takes in Redis; 0 if the user may not ask.
func (t topic) memory(ctx context.Context) (int64, error) {
	sizes, known := make([]int64, t.partitions), make([]bool, t.partitions)
	err := each(len(sizes), func(i int) (err error) {
		sizes[i], known[i], err = inspect.Memory(ctx, t.Partition(i), t.roster.All())
		return err
	})
	if err != nil || slices.Contains(known, false) {
		return 0, err
	}
	sum := int64(0)
	for _, size := range sizes {
		sum += size
	}
	return sum, nil
}

// add adds what a partition has.
func (s *TopicStats) add(p inspect.Survey) {
	s.Scheduled += p.Scheduled
	s.Due += p.Due
	s.OldestDue = earliest(s.OldestDue, p.OldestDue)
	s.NextDue = earliest(s.NextDue, p.NextDue)
	s.Messages += p.Messages
	s.Keys += p.Keys
	s.Windows += p.Windows
	if len(p.Sample) > 0 {
		sum := 0
		for _, size := range p.Sample {
			sum += size
		}
		s.Bytes += int64(float64(sum) / float64(len(p.Sample)) * float64(p.Messages))
	}
}

// earliest is the earlier of two times, of which those that are zero do not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Groups returns the statistics of all groups of a topic, those that are retired included,
// sorted by name. The errors are those of Stats.
func (a *Admin) Groups(ctx context.Context, topic string) ([]GroupStats, error) {
	t, err := a.open(ctx, topic)
	var groups []GroupStats
	if err == nil {
		groups, err = t.stats(ctx)
	}
	return groups, wrap(err, "groups of %q", topic)
}

// stats asks for each group in each partition.
func (t topic) stats(ctx context.Context) ([]GroupStats, error) {
	names, n := t.roster.All(), t.partitions
	tallies := make([]inspect.Tally, len(names)*n)
	consumers := make([][]inspect.Consumer, len(tallies))
	err := each(len(tallies), func(i int) (err error) {
		g := t.Partition(i % n).Group(names[i/n])
		if tallies[i], err = inspect.ReadTally(ctx, g); err == nil {
			consumers[i], err = inspect.Consumers(ctx, g)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	list := make([]GroupStats, len(names))
	for i, name := range names {
		list[i] = groupStats(name, t.roster, tallies[i*n:(i+1)*n])
		list[i].Consumers = consumersOf(t.name, name, consumers[i*n:(i+1)*n])
	}
	return list, nil
}

// groupStats adds up what the partitions have for a group.
func groupStats(name string, roster inspect.Roster, tallies []inspect.Tally) GroupStats {
	s := GroupStats{Group: name, At: tallies[0].Now, State: GroupActive, ExpiresAt: roster.Expiring[name]}
	for _, t := range tallies {
		s.Queued += t.Queued
		s.Retrying += t.Later
		s.InDelivery += t.InDelivery
		s.Expired += t.Expired
		s.Dead += t.Dead
		s.OldestQueued = earliest(s.OldestQueued, t.OldestQueued)
		s.NextRetry = earliest(s.NextRetry, t.NextRetry)
		s.OldestUnacked = earliest(s.OldestUnacked, publishedAt(t.OldestUnacked))
		s.OldestDead = earliest(s.OldestDead, t.OldestDead)
	}
	if share, limited := roster.Limits[name]; limited {
		s.Limits = limitsOf(share.Whole)
	}
	s.State = stateOf(name, roster, s.Queued+s.Retrying+s.InDelivery+s.Dead)
	if s.State == GroupActive {
		s.Pause = pauseOf(roster, name)
	}
	return s
}

// stateOf is the state of a group that holds so many messages.
func stateOf(name string, roster inspect.Roster, holds int) GroupState {
	switch tombstone, retired := roster.Retired[name]; {
	case retired && tombstone.Expired:
		return GroupExpired
	case retired && holds > 0:
		return GroupRetiring
	case retired:
		return GroupRetired
	}
	return GroupActive
}

func limitsOf(l queue.Limits) *redisdelay.GroupLimits {
	return &redisdelay.GroupLimits{
		MaxInFlight: l.MaxInFlight, Rate: redisdelay.Rate{Messages: l.Messages, Per: l.Per, Burst: l.Burst},
	}
}

// pauseOf is the pause that keeps a group, or all groups, from claiming: of two, the one that
// lasts longer.
func pauseOf(roster inspect.Roster, group string) *Pause {
	all, paused := roster.Pauses[redisdelay.AllGroups]
	own, ownPaused := roster.Pauses[group]
	longer := own.Until.IsZero() || !all.Until.IsZero() && own.Until.After(all.Until)
	switch {
	case group != redisdelay.AllGroups && ownPaused && (!paused || longer):
		return &Pause{Since: own.Since, Until: own.Until, By: own.By, Reason: own.Reason}
	case paused:
		return &Pause{All: true, Since: all.Since, Until: all.Until, By: all.By, Reason: all.Reason}
	}
	return nil
}

// consumersOf joins what the partitions know of consumers, sorted by name and id.
func consumersOf(topic, group string, partitions [][]inspect.Consumer) []Consumer {
	known := map[string]Consumer{}
	for _, list := range partitions {
		for _, seen := range list {
			c, is := known[seen.ID]
			if !is {
				c = Consumer{
					Topic: topic, Group: group, ID: seen.ID, Name: seen.About.Name, PID: seen.About.PID, Holds: map[string]int{},
				}
			}
			c.Since = earliest(c.Since, seen.Since)
			c.Seen, c.AliveUntil = latest(c.Seen, seen.Seen), latest(c.AliveUntil, seen.Alive)
			for id, times := range seen.About.Held {
				c.Holds[id] = int(times[1])
			}
			known[seen.ID] = c
		}
	}
	return slices.SortedFunc(maps.Values(known), func(a, b Consumer) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}
