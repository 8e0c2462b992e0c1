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

// Topics lists the topics of the prefix, sorted by name.
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

// Counts are the numbers of messages in each place. In the counts of a topic, a message counts once for each group that
// has it. Scheduled, Ready, Postponed, InLine, InDelivery and Dead add up to all; Due and LeaseExpired are parts of
// others.
type Counts struct {
	Scheduled    int // not given to the groups yet; 0 for a group
	Due          int // the part of Scheduled that is due; 0 for a group
	Ready        int // due in the queue of a group, for the first delivery or a retry
	Postponed    int // due later in the queue of a group: nacked, deferred or rescheduled
	InLine       int // due, but waiting in line for their ordering keys
	InDelivery   int // held by a consumer
	LeaseExpired int // the part of InDelivery whose lease has ended: the next claim takes it over
	Dead         int // dead messages
}

// Add adds other counts.
func (c *Counts) Add(other Counts) { (*inspect.Counts)(c).Add(inspect.Counts(other)) }

// held returns the number of messages that groups have.
func (c Counts) held() int { return c.Ready + c.InLine + c.Postponed + c.InDelivery + c.Dead }

// TopicStats are the statistics of a topic. Partitions, and many groups of a partition, are counted at slightly
// different moments.
type TopicStats struct {
	Topic      string
	At         time.Time // when the first partition was read
	Partitions int

	Counts              // of the topic and all its groups
	OldestDue time.Time // the earliest due time of the part that is Due; zero for none

	// Overdue is how long ago the oldest message that is due and not claimed became due. Messages in line, and those
	// that wait only for paused groups, do not count. 0: none.
	Overdue time.Duration

	// DueWithin has the number of scheduled messages that are due within each of StatsOptions.DueWithin, or already.
	DueWithin []int

	Messages int // stored messages, each counted once
	Keys     int // message keys (redisdelay.SetKey) by which a message or a dead message is found

	// Filled only with StatsOptions.Details:
	NextDue time.Time // the earliest due time of a scheduled message after At; zero for none
	Windows int       // deduplication windows (redisdelay.PublisherConfig.DeduplicationWindow)
	Bytes   int64     // of the messages' bodies, estimated from a sample
	Memory  int64     // of all of the topic's keys in Redis, estimated from samples; 0 if the user has no right to ask

	Pause  *redisdelay.Pause // of all groups; nil if there is none
	Groups []GroupStats
}

// GroupState is whether a consumer group gets messages.
type GroupState string

// The states of a consumer group.
const (
	GroupActive   GroupState = "active"
	GroupRetired  GroupState = "retired"  // until RestoreGroup; see redisdelay.Control
	GroupExpired  GroupState = "expired"  // had no consumer for its GroupExpiry; its messages are being freed
	GroupRetiring GroupState = "retiring" // retired, and still holds messages
)

// GroupStats are the statistics of a consumer group in a topic.
type GroupStats struct {
	Group string
	State GroupState
	At    time.Time

	Counts
	OldestReady time.Time // the earliest due time of the Ready messages; zero for none

	// HaltedKeys is how many ordering keys wait for a dead message (redisdelay.GroupLimits.HaltsKeys), among the newest
	// 1,000 dead messages of each partition.
	HaltedKeys int

	// Overdue is how long ago the oldest message that is due and that this group has not claimed became due, even if it
	// is only Due in the topic. Messages in line do not count. 0: none, or the group is paused or not active.
	Overdue time.Duration

	Pause         *redisdelay.Pause // the group's own, or that of all groups if it lasts longer; nil for none
	Limits        *redisdelay.GroupLimits
	AtLimit       bool      // a limit allows no more claims now; for Rate, in the first partition
	ExpiresAt     time.Time // when it ends at the earliest without a consumer; zero for never
	LiveConsumers int       // number of live consumers

	// Filled only with StatsOptions.Details:
	NextDue       time.Time // the earliest due time of the Postponed messages; zero for none
	OldestUnacked time.Time // when the oldest of up to 1,000 messages in delivery was published; zero for none
	OldestDead    time.Time // when the first dead message was buried; zero for none
	Consumers     []Consumer
}

// Consumer is a live subscription: with the defaults, one that was not closed and has called Redis within the last
// minute (docs/use/groups.md).
type Consumer struct {
	Topic, Group string
	ID           string // unique to the subscription
	Name         string // SubscriberConfig.ConsumerName
	PID          int
	Since        time.Time // when a partition first saw it
	LastSeen     time.Time // when a partition last saw it
	AliveUntil   time.Time

	// Holds has the ids of messages that handlers had at the last heartbeat, every third of the lease, with the number
	// of extensions of their leases: at most the 50 per partition that were held longest.
	Holds map[string]int
}

// StatsOptions say what Stats counts. The zero value counts all topics, cheaply enough to do it every few seconds.
type StatsOptions struct {
	// Topics are the topics to count. Default: all topics of the prefix.
	Topics []string

	// Details also fills the fields of TopicStats and GroupStats that are marked with Details, with several calls for
	// each group of each partition. Without it, Redis takes about 20 µs for each partition and 10 µs for each of its
	// groups.
	Details bool

	// DueWithin has the times for TopicStats.DueWithin. Each takes Redis about 10 µs for each partition.
	DueWithin []time.Duration
}

// Stats returns the statistics of topics and their groups, in the order of StatsOptions.Topics or sorted by name. If
// some topics cannot be read, it returns the others, and an error that wraps the error of each. If the list of topics
// cannot be read, the statistics are empty.
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

// topicErrors are the errors of topics that could not be read.
type topicErrors []error

// topicErrorsShown is the number of topics that the text of topicErrors names.
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

// counted has the statistics of a topic, or an error.
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

// chosen returns the named topics. Topics that are not listed have no version.
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

// topicsAtOnce is the number of topics that Stats counts concurrently with Details.
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

// statsOf returns the statistics of one topic, with details.
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

// memory estimates the memory of the topic in Redis; 0 without the right to ask.
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
func (a *Admin) Groups(ctx context.Context, topic string) ([]GroupStats, error) {
	t, err := a.open(ctx, topic)
	var s TopicStats
	if err == nil {
		s, err = t.stats(ctx)
	}
	return s.Groups, wrap(err, "groups of %q", topic)
}

// stats returns the statistics without the memory.
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
		g.LiveConsumers = len(g.Consumers)
	}
	return s, nil
}

// counts adds the counts of the partitions.
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
		Group: name, At: t.At, Counts: Counts(counts.Counts), OldestReady: counts.OldestReady, NextDue: counts.NextDue,
		OldestUnacked: publishedAt(counts.OldestUnacked), OldestDead: counts.OldestDead, HaltedKeys: counts.Halted,
		ExpiresAt: groupList.Expiring[name], LiveConsumers: counts.Consumers,
	}
	if share, limited := groupList.Limits[name]; limited {
		g.Limits = limitsOf(share.Whole)
		full := share.Whole.MaxInFlight > 0 && g.InDelivery >= share.Whole.MaxInFlight
		g.AtLimit = full || share.NextClaim().After(groupList.Now)
	}
	if g.State = stateOf(name, groupList, g.held()); g.State == GroupActive {
		g.Pause = pauseOf(groupList, name)
	}
	if g.State == GroupActive && g.Pause == nil {
		g.Overdue = since(inspect.Earliest(t.OldestDue, g.OldestReady), t.At)
	}
	return g
}

func since(t, at time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(0, at.Sub(t))
}

// stateOf returns the state of a group that holds a number of messages.
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

// pauseOf returns the pause of a group: its own or that of all groups, whichever lasts longer.
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

// consumersOf merges the consumers of the partitions, sorted by name and id.
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
			c.LastSeen, c.AliveUntil = latest(c.LastSeen, seen.Seen), latest(c.AliveUntil, seen.Alive)
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
