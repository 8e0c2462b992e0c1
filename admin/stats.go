package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Topics lists the topics of the prefix, sorted by name. The error is that of ctx or of Redis, or a *redisdelay.KeyTypeError.
func (a *Admin) Topics(ctx context.Context) ([]string, error) {
	listed, err := inspect.Topics(ctx, a.store)
	if err != nil {
		return nil, wrap(err, "list topics")
	}
	names := make([]string, len(listed))
	for i, t := range listed {
		names[i] = t.Name
	}
	return names, nil
}

// Counts are the numbers of messages in each state. In the counts of a topic, a message counts once for each group that
// has it.
type Counts struct {
	Scheduled    int // messages that no group has been given yet, including those that are due; 0 for a group
	Due          int // of these, how many are due; 0 for a group
	Queued       int // messages that are due and wait for a consumer, also for a retry (redisdelay.StateRetrying)
	Retrying     int // messages that the group has been given and that are due later: retries, or put off
	InLine       int // messages that are due, and wait in line for their ordering keys
	InDelivery   int // messages that a consumer holds
	LeaseExpired int // of these, those whose lease has run out: the next claim takes them over
	Dead         int // dead letters
}

// Add adds other counts.
func (c *Counts) Add(other Counts) { (*inspect.Counts)(c).Add(inspect.Counts(other)) }

// held is how many messages groups have.
func (c Counts) held() int { return c.Queued + c.InLine + c.Retrying + c.InDelivery + c.Dead }

// TopicStats are the statistics of a topic. The partitions are counted at slightly different moments. So are the groups
// of a partition, if it has more than ten, or more than two with Details.
type TopicStats struct {
	Topic      string
	At         time.Time // Redis's clock when the first partition was looked at
	Partitions int

	Counts              // of the topic and all its groups
	OldestDue time.Time // the earliest due time of those that are Due; zero if none is

	// Overdue is how long ago the oldest due message that no consumer has claimed fell due. Messages in line do
	// not count. It is 0 if no other message waits, or only for groups that are paused.
	Overdue time.Duration

	// DueWithin are how many of the Scheduled are due already or within each of StatsOptions.DueWithin.
	DueWithin []int

	Messages int // messages in all, whatever groups still need them
	Keys     int // message keys that lead to a message, also to a dead letter that has lost its key

	// Filled only with StatsOptions.Details:
	NextDue time.Time // the earliest due time after At; zero if nothing else is scheduled
	Windows int       // message keys that are taken for a deduplication window
	Bytes   int64     // of the messages' bodies alone, estimated from a sample
	Memory  int64     // that all of the topic's keys take in Redis, estimated from samples; 0 if the user may not ask

	Pause  *redisdelay.Pause // of all groups; nil if there is none
	Groups []GroupStats
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

// GroupStats are the statistics of a consumer group in a topic.
type GroupStats struct {
	Group string
	State GroupState
	At    time.Time

	Counts
	OldestQueued time.Time // the earliest due time of the queued; zero if none

	// HaltedKeys is how many ordering keys wait for a dead letter (redisdelay.GroupLimits.HaltsKeys), among the
	// newest 1,000 dead letters of each partition: so it is exact if there are no more.
	HaltedKeys int

	// Overdue is how long ago the oldest due message that this group has not claimed fell due, also
	// if it is still Due in the topic. Messages in line do not count. It is 0 if no other waits, or the group is paused or
	// not active.
	Overdue time.Duration

	Pause     *redisdelay.Pause // the group's own, or that of all groups if it lasts longer; nil if there is none
	Limits    *redisdelay.GroupLimits
	ExpiresAt time.Time // when it ends at the earliest if no consumer is seen; zero if it lasts for ever
	Alive     int       // consumers that are alive

	// Filled only with StatsOptions.Details:
	NextRetry     time.Time // when the first of the retrying is due; zero if none
	OldestUnacked time.Time // when the oldest of up to 1,000 messages in delivery was published; zero if none
	OldestDead    time.Time // when the first of the dead letters was buried; zero if none
	Consumers     []Consumer
}

// Consumer is a subscription that is alive: it has called Redis within its lease, or within twice the longest time
// between its polls. With the default PollInterval, that is a minute.
type Consumer struct {
	Topic, Group string
	ID           string // unique to the subscription
	Name         string // SubscriberConfig.Consumer
	PID          int
	Since        time.Time // when a partition first saw it
	Seen         time.Time // when a partition last saw it
	AliveUntil   time.Time

	// Holds are messages that the consumer's handlers had at its last heartbeat, every third of its lease, with how
	// often their leases had been extended by then. At most 50 per partition, oldest first.
	Holds map[string]int
}

// StatsOptions say what Stats counts. The zero value counts all topics, cheaply enough to do it every few seconds.
type StatsOptions struct {
	// Topics are the topics to count. Default: all topics of the prefix.
	Topics []string

	// Details also fills the fields of TopicStats and GroupStats that are marked with Details. This takes several calls
	// for each group of each partition. Without it, all topics take a few round trips, and Redis about 20 µs for each
	// partition and 10 µs for each of its groups.
	Details bool

	// DueWithin asks for TopicStats.DueWithin. Each of its times takes Redis about 10 µs for each partition.
	DueWithin []time.Duration
}

// Stats returns the statistics of topics and their groups, in the order of StatsOptions.Topics or, by default, sorted by name.
//
// If some topics cannot be read, for example because a master does not answer before ctx ends, Stats returns the statistics of
// the other topics and an error that wraps the error of each topic: ErrTopicNotFound for one of StatsOptions.Topics,
// redisdelay.ErrEmptyTopic, redisdelay.ErrProtocolTooNew, *redisdelay.KeyTypeError, or that of ctx or of Redis. The
// statistics are empty if the list of topics itself cannot be read.
func (a *Admin) Stats(ctx context.Context, options StatsOptions) ([]TopicStats, error) {
	read := a.quickStats
	if options.Details {
		read = a.detailedStats
	}
	all, err := read(ctx, options)
	if err != nil {
		return nil, wrap(err, "list topics")
	}
	var list []TopicStats
	var failed []error
	for _, one := range all {
		switch {
		case one.err == nil:
			list = append(list, one.TopicStats)
		case len(options.Topics) > 0 || !errors.Is(one.err, ErrTopicNotFound): // else it was deleted meanwhile
			failed = append(failed, fmt.Errorf("%q: %w", one.Topic, one.err))
		}
	}
	if len(failed) > 0 {
		return list, publicError{topicErrors(failed)}
	}
	return list, nil
}

// topicErrors are why topics could not be read.
type topicErrors []error

// topicErrorsShown is how many topics the text of topicErrors names.
const topicErrorsShown = 5

func (e topicErrors) Error() string {
	var texts []string
	for _, err := range e[:min(len(e), topicErrorsShown)] {
		texts = append(texts, err.Error())
	}
	if more := len(e) - topicErrorsShown; more > 0 {
		texts = append(texts, "and of "+humanize.Count(more, "other topic", "other topics"))
	}
	return "redisdelay: statistics of " + strings.Join(texts, "; ")
}

func (e topicErrors) Unwrap() []error { return e }

// counted is a topic, or why it could not be read.
type counted struct {
	TopicStats
	err error
}

func (a *Admin) quickStats(ctx context.Context, options StatsOptions) ([]counted, error) {
	topics, err := inspect.Topics(ctx, a.store)
	if err != nil {
		return nil, err
	}
	if len(options.Topics) > 0 {
		topics = chosen(topics, options.Topics)
	}
	all := make([]counted, len(topics))
	for i, c := range inspect.CountAll(ctx, a.store, topics, options.DueWithin) {
		name, err := topics[i].Name, c.Err
		switch {
		case name == "":
			err = redisdelay.ErrEmptyTopic
		case topics[i].Version == "":
			err = ErrTopicNotFound
		}
		all[i] = counted{TopicStats{Topic: name}, err}
		if err == nil {
			all[i].TopicStats = topicStats(name, c.Partitions, c.GroupList, c.TopicCounts)
		}
	}
	return all, nil
}

// chosen are some of the listed topics. Those that are not listed have no version.
func chosen(listed []inspect.Listed, names []string) []inspect.Listed {
	versions := map[string]string{}
	for _, t := range listed {
		versions[t.Name] = t.Version
	}
	list := make([]inspect.Listed, len(names))
	for i, name := range names {
		list[i] = inspect.Listed{Name: name, Version: versions[name]}
	}
	return list
}

// topicsAtOnce is how many topics Stats counts at once in detail.
const topicsAtOnce = 8

func (a *Admin) detailedStats(ctx context.Context, options StatsOptions) ([]counted, error) {
	names, err := options.Topics, error(nil)
	if len(names) == 0 {
		if names, err = a.Topics(ctx); err != nil {
			return nil, err
		}
	}
	all := make([]counted, len(names))
	_ = eachOf(len(names), topicsAtOnce, func(i int) error { // each has its own error
		s, err := a.statsOf(ctx, names[i], options.DueWithin)
		s.Topic = names[i]
		all[i] = counted{s, err}
		return nil
	})
	return all, nil
}

// statsOf is all of one topic.
func (a *Admin) statsOf(ctx context.Context, name string, dueWithin []time.Duration) (TopicStats, error) {
	t, err := a.open(ctx, name)
	if err != nil {
		return TopicStats{}, err
	}
	s, err := t.stats(ctx)
	if err == nil {
		s.DueWithin, err = inspect.DueWithin(ctx, a.store, name, t.partitions, s.At, dueWithin)
	}
	if err == nil {
		s.Memory, err = t.memory(ctx)
	}
	return s, err
}

// memory estimates what the topic takes in Redis; 0 if the user may not ask.
func (t topic) memory(ctx context.Context) (int64, error) {
	sizes, known := make([]int64, t.partitions), make([]bool, t.partitions)
	err := each(len(sizes), func(i int) (err error) {
		sizes[i], known[i], err = inspect.Memory(ctx, t.Partition(i), t.groupList.All())
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

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Groups returns the statistics of all groups of a topic, including retired groups, sorted by name and with details.
// The errors are those of Stats.
func (a *Admin) Groups(ctx context.Context, topic string) ([]GroupStats, error) {
	t, err := a.open(ctx, topic)
	var s TopicStats
	if err == nil {
		s, err = t.stats(ctx)
	}
	return s.Groups, wrap(err, "groups of %q", topic)
}

// stats is all but the memory.
func (t topic) stats(ctx context.Context) (TopicStats, error) {
	counts, err := t.counts(ctx, t.groupList.All(), inspect.Details)
	if err != nil {
		return TopicStats{}, err
	}
	s := topicStats(t.name, t.partitions, t.groupList, counts)
	consumers := make([][]inspect.Consumer, len(s.Groups)*t.partitions)
	err = each(len(consumers), func(i int) (err error) {
		consumers[i], err = inspect.Consumers(ctx, t.Partition(i%t.partitions).Group(s.Groups[i/t.partitions].Group))
		return err
	})
	if err != nil {
		return TopicStats{}, err
	}
	for i := range s.Groups {
		g := &s.Groups[i]
		g.Consumers = consumersOf(t.name, g.Group, consumers[i*t.partitions:(i+1)*t.partitions])
		g.Alive = len(g.Consumers)
	}
	return s, nil
}

// counts adds up what the partitions have.
func (t topic) counts(ctx context.Context, groups []string, more inspect.More) (sum inspect.TopicCounts, err error) {
	parts := make([]inspect.TopicCounts, t.partitions)
	err = each(len(parts), func(i int) (err error) {
		parts[i], err = inspect.ReadCounts(ctx, t.Partition(i), groups, more)
		if err == nil && more == inspect.Details {
			err = parts[i].AddHalted(ctx, t.Partition(i), inspect.Halting(t.groupList, parts[i]))
		}
		return err
	})
	for _, part := range parts {
		sum.Add(part)
	}
	return sum, err
}

func topicStats(name string, partitions int, groupList inspect.GroupList, counts inspect.TopicCounts) TopicStats {
	s := TopicStats{
		Topic: name, At: counts.Now, Partitions: partitions,
		Counts: Counts(counts.Counts), OldestDue: counts.OldestDue, NextDue: counts.NextDue, DueWithin: counts.Within,
		Messages: counts.Messages, Bytes: counts.Bytes, Keys: counts.Keys, Windows: counts.Windows,
		Pause: pauseOf(groupList, allGroups),
	}
	active := 0
	for _, name := range groupList.All() {
		g := groupStats(name, s, groupList, counts.Groups[name])
		s.Groups = append(s.Groups, g)
		s.Overdue = max(s.Overdue, g.Overdue)
		if g.State == GroupActive {
			active++
		}
	}
	if active == 0 && s.Pause == nil { // what is due waits for a first group
		s.Overdue = since(s.OldestDue, s.At)
	}
	return s
}

func groupStats(name string, t TopicStats, groupList inspect.GroupList, counts inspect.GroupCounts) GroupStats {
	g := GroupStats{
		Group: name, At: t.At, Counts: Counts(counts.Counts), OldestQueued: counts.OldestQueued, NextRetry: counts.NextRetry,
		OldestUnacked: publishedAt(counts.OldestUnacked), OldestDead: counts.OldestDead, HaltedKeys: counts.Halted,
		ExpiresAt: groupList.Expiring[name], Alive: counts.Consumers,
	}
	if share, limited := groupList.Limits[name]; limited {
		g.Limits = limitsOf(share.Whole)
	}
	if g.State = stateOf(name, groupList, g.held()); g.State == GroupActive {
		g.Pause = pauseOf(groupList, name)
	}
	if g.State == GroupActive && g.Pause == nil {
		g.Overdue = since(inspect.Earliest(t.OldestDue, g.OldestQueued), t.At)
	}
	return g
}

func since(t, at time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(0, at.Sub(t))
}

// stateOf is the state of a group that holds so many messages.
func stateOf(name string, groupList inspect.GroupList, holds int) GroupState {
	switch tombstone, retired := groupList.Retired[name]; {
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
		MaxInFlight: l.MaxInFlight, Rate: redisdelay.Rate{Messages: l.Messages, Per: l.Per, Burst: l.Burst}, HaltsKeys: l.HaltsKeys,
	}
}

const allGroups = "" // in package queue

// pauseOf is the pause that keeps a group, or all groups, from claiming: of two, the one that
// lasts longer.
func pauseOf(groupList inspect.GroupList, group string) *redisdelay.Pause {
	all, paused := groupList.Pauses[allGroups]
	own, ownPaused := groupList.Pauses[group]
	longer := own.Until.IsZero() || !all.Until.IsZero() && own.Until.After(all.Until)
	switch {
	case group != allGroups && ownPaused && (!paused || longer):
		return inForce(own, false)
	case paused:
		return inForce(all, true)
	}
	return nil
}

func inForce(p inspect.PauseInForce, all bool) *redisdelay.Pause {
	pause := &redisdelay.Pause{By: p.By, Reason: p.Reason, Since: p.Since, All: all}
	if !p.Until.IsZero() {
		pause.For = p.Until.Sub(p.Since)
	}
	return pause
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
			c.Since = inspect.Earliest(c.Since, seen.Since)
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
