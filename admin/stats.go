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

// Topic is a topic on the list of topics of the prefix.
type Topic struct {
	Name    string
	Version string // of the protocol: "1", or "2" once it uses what that has added (docs/inside/protocol.md)
}

// Topics lists the topics of the prefix, sorted by name. The error is that of Redis, or a
// *redisdelay.KeyTypeError.
func (a *Admin) Topics(ctx context.Context) ([]Topic, error) {
	listed, err := inspect.Topics(ctx, a.store)
	if err != nil {
		return nil, wrap(err, "list topics")
	}
	topics := make([]Topic, len(listed))
	for i, t := range listed {
		topics[i] = Topic(t)
	}
	return topics, nil
}

// TopicStats is what a topic holds at a moment. Counts are exact for each partition; the
// partitions are looked at one after the other.
type TopicStats struct {
	Topic      string
	Version    string
	At         time.Time // Redis's clock when the first partition was looked at
	Partitions int

	Scheduled int       // messages that no group has been given yet, including those that are due
	Due       int       // of these, how many are due
	OldestDue time.Time // the earliest due time of those; zero if none is due
	NextDue   time.Time // the earliest due time after At; zero if nothing else is scheduled

	Messages int   // messages in all, whatever groups still need them
	Bytes    int64 // of their bodies alone, estimated from a sample
	Memory   int64 // that all of the topic's keys take in Redis, estimated from samples; 0 if the user may not ask
	Keys     int   // message keys that lead to a message, also to a dead letter that has lost its key
	Windows  int   // message keys that are taken for a deduplication window

	Pause  *Pause // of all groups; nil if there is none
	Groups []GroupStats

	// Err is why the topic could not be read: one of the errors of Stats. Then only Topic and
	// Version are known. It is nil but in the result of AllStats.
	Err error
}

// Overdue is how long the longest waiting due message has waited, for being given to the
// groups or, in the queue of one, for a consumer. Groups that are paused do not count: it is 0
// if no message waits, or only for them.
func (s TopicStats) Overdue() time.Duration {
	var w waiting
	for _, g := range s.Groups {
		w.add(g.State, g.Pause != nil, g.OldestQueued)
	}
	return w.overdue(s.Pause != nil, s.OldestDue, s.At)
}

// waiting adds up which groups of a topic wait for messages.
type waiting struct {
	active, claiming int
	oldest           time.Time // the longest waiting due message in the queue of those that claim
}

func (w *waiting) add(state GroupState, paused bool, oldestQueued time.Time) {
	if state != GroupActive {
		return
	}
	w.active++
	if !paused {
		w.claiming++
		w.oldest = earliest(w.oldest, oldestQueued)
	}
}

// overdue is for how long the topic has kept a message waiting. What is due and not given to
// the groups waits for those that claim, or for a first group.
func (w *waiting) overdue(paused bool, oldestDue, at time.Time) time.Duration {
	switch {
	case paused:
		return 0
	case w.claiming > 0 || w.active == 0:
		return since(earliest(w.oldest, oldestDue), at)
	}
	return 0
}

func since(t, at time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(0, at.Sub(t))
}

// Dead is the number of dead letters of all groups.
func (s TopicStats) Dead() int {
	sum := 0
	for _, g := range s.Groups {
		sum += g.Dead
	}
	return sum
}

// GroupState tells whether a consumer group gets messages.
type GroupState string

// The states of a consumer group.
const (
	GroupActive   GroupState = "active"
	GroupRetired  GroupState = "retired"  // until RestoreGroup; see redisdelay.Control
	GroupExpired  GroupState = "expired"  // it had no consumer for its GroupExpiry; what it held is being freed
	GroupRetiring GroupState = "retiring" // retired, and still holds messages
)

// GroupStats is what a consumer group has before it in a topic.
type GroupStats struct {
	Group string
	State GroupState
	At    time.Time

	Queued     int // messages that wait for a consumer, and are due
	Retrying   int // messages that wait for a later time: a retry, or because they were put off
	InDelivery int // messages that a consumer holds
	Expired    int // of these, those whose lease has run out: the next claim takes them over
	Dead       int // dead letters

	OldestQueued  time.Time // the earliest due time of the queued; zero if none
	NextRetry     time.Time // when the first of the retrying is due; zero if none
	OldestUnacked time.Time // when the oldest of up to 1,000 messages in delivery was published; zero if none
	OldestDead    time.Time // when the first of the dead letters was buried; zero if none

	Pause     *Pause // the group's own, or that of all groups if it lasts longer; nil if there is none
	Limits    *redisdelay.GroupLimits
	ExpiresAt time.Time // when it ends at the earliest if no consumer is seen; zero if it lasts for ever
	Consumers []Consumer
}

// Pause is a pause that is in force.
type Pause struct {
	All        bool // of all groups
	Since      time.Time
	Until      time.Time // zero: until somebody resumes
	By, Reason string
}

// Consumer is a subscription that is alive: it has called Redis within its lease, or two of
// its poll intervals.
type Consumer struct {
	Topic, Group string
	ID           string // unique to the subscription
	Name         string // SubscriberConfig.Consumer
	PID          int
	Since        time.Time // when a partition first saw it
	Seen         time.Time // when a partition last saw it
	AliveUntil   time.Time

	// Holds are messages that the consumer's handlers had at its last heartbeat, every third of
	// its lease, with how often their leases had been extended by then. At most 50 a partition, and
	// those first that came first.
	Holds map[string]int
}

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
					Topic: topic, Group: group, ID: seen.ID, Name: seen.Info.Name, PID: seen.Info.PID, Holds: map[string]int{},
				}
			}
			c.Since = earliest(c.Since, seen.Since)
			c.Seen, c.AliveUntil = latest(c.Seen, seen.Seen), latest(c.AliveUntil, seen.Alive)
			for id, times := range seen.Info.Held {
				c.Holds[id] = int(times[1])
			}
			known[seen.ID] = c
		}
	}
	return slices.SortedFunc(maps.Values(known), func(a, b Consumer) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}
