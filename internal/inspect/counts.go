package inspect

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Counts are the numbers of messages in each place. A message counts once for each group that has it.
type Counts struct {
	Scheduled, Due   int // not given to the groups yet; of these, due
	Ready, Postponed int // in queues: due, and due later
	InLine           int // in queues: due, and in line for their ordering keys
	InDelivery       int
	LeaseExpired     int // the part of InDelivery whose lease has expired
	Dead             int
}

// Add adds other counts.
func (c *Counts) Add(other Counts) {
	c.Scheduled += other.Scheduled
	c.Due += other.Due
	c.Ready += other.Ready
	c.Postponed += other.Postponed
	c.InLine += other.InLine
	c.InDelivery += other.InDelivery
	c.LeaseExpired += other.LeaseExpired
	c.Dead += other.Dead
}

// More says what a call counts in addition to Counts.
type More string

// The values of More, cheapest first.
const (
	Nothing       More = ""
	LiveConsumers More = "consumers"
	Details       More = "details"
)

// TopicCounts are the counts of a partition, or of all partitions of a topic.
type TopicCounts struct {
	Counts                   // including those of all groups
	Now            time.Time // of the partition that was added first
	OldestDue      time.Time // zero if there is none
	Messages, Keys int
	Groups         map[string]GroupCounts
	Within         []int // Scheduled as far as they are due within some time from Now; see CountAll

	// Details.
	NextDue time.Time
	Windows int
	Bytes   int64 // of all bodies, estimated
}

// GroupCounts are the counts of a group. Messages that no group has been given do not count.
type GroupCounts struct {
	Counts
	OldestReady time.Time // zero if there is none

	Halted    int // ordering keys that dead messages halt; see Halting
	Consumers int // LiveConsumers: the largest number that a partition knows, since each consumer looks after all

	// Details.
	NextDue, OldestDead time.Time
	OldestUnacked       string // the smallest id of up to 1,000 messages in each partition
}

// Add adds the counts of another partition.
func (t *TopicCounts) Add(other TopicCounts) {
	if t.Groups == nil {
		t.Groups = map[string]GroupCounts{}
	}
	t.Counts.Add(other.Counts)
	if t.Now.IsZero() {
		t.Now = other.Now
	}
	t.OldestDue, t.NextDue = Earliest(t.OldestDue, other.OldestDue), Earliest(t.NextDue, other.NextDue)
	t.Messages, t.Keys, t.Windows, t.Bytes = t.Messages+other.Messages, t.Keys+other.Keys, t.Windows+other.Windows, t.Bytes+other.Bytes
	for name, g := range other.Groups {
		sum := t.Groups[name]
		sum.add(g)
		t.Groups[name] = sum
	}
}

func (g *GroupCounts) add(other GroupCounts) {
	g.Add(other.Counts)
	g.OldestReady, g.NextDue = Earliest(g.OldestReady, other.OldestReady), Earliest(g.NextDue, other.NextDue)
	g.OldestDead, g.Consumers = Earliest(g.OldestDead, other.OldestDead), max(g.Consumers, other.Consumers)
	g.Halted += other.Halted
	if g.OldestUnacked == "" || other.OldestUnacked != "" && other.OldestUnacked < g.OldestUnacked {
		g.OldestUnacked = other.OldestUnacked
	}
}

// Earliest returns the earlier of two times. A zero time does not count.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// ReadCounts reads the counts of a partition and of some of its groups.
func ReadCounts(ctx context.Context, p *queue.Partition, groups []string, more More) (TopicCounts, error) {
	var sum TopicCounts
	for _, c := range countCalls(p, groups, more) {
		reply, err := p.Client().Run(ctx, c.call())
		if err == nil {
			err = c.read(ctx, reply, &sum)
		}
		if err != nil {
			return TopicCounts{}, err
		}
	}
	return sum, nil
}

// CountTopic returns the counts of a topic for one group, or for all groups if it is "". Messages that no group has been
// given count if the topic has a group.
func CountTopic(ctx context.Context, t *queue.Topic, group string) (Counts, error) {
	if err := t.RequireListed(ctx); err != nil {
		return Counts{}, err
	}
	names, number, err := t.Groups(ctx)
	switch {
	case err != nil:
		return Counts{}, err
	case group != "" && !slices.Contains(names, group):
		return Counts{}, fmt.Errorf("%w: %q", queue.ErrGroupNotFound, group)
	case group != "":
		names = []string{group}
	case len(names) == 0:
		return Counts{}, nil
	}
	var mu sync.Mutex
	var sum Counts
	err = t.EachIn(ctx, 0, number, func(ctx context.Context, p *queue.Partition) error {
		counts, err := ReadCounts(ctx, p, names, Nothing)
		mu.Lock()
		defer mu.Unlock()
		sum.Add(counts.Counts)
		return err
	})
	return sum, err
}

// groupsPerCall is the maximum number of groups that one call counts. Each may have a hundred consumers of some KiB and, with
// Details, a thousand messages in delivery to read.
const (
	groupsPerCall   = 10
	detailedPerCall = 2
)

// countCall counts a partition and some of its groups.
type countCall struct {
	partition *queue.Partition
	groups    []string
	more      More
	first     bool // the first call for the partition, which alone counts scheduled messages
}

func countCalls(p *queue.Partition, groups []string, more More) []countCall {
	limit := groupsPerCall
	if more == Details {
		limit = detailedPerCall
	}
	calls := []countCall{{p, groups[:min(len(groups), limit)], more, true}}
	for chunk := range slices.Chunk(groups[len(calls[0].groups):], limit) {
		calls = append(calls, countCall{p, chunk, more, false})
	}
	return calls
}

func (c countCall) call() script.Call {
	return c.partition.Call(countsScript, c.partition.Keys(countsScript, "", c.groups...), []any{string(c.more)})
}

// read adds a reply.
func (c countCall) read(ctx context.Context, r script.Reply, sum *TopicCounts) error {
	t := TopicCounts{Now: r.Time(), Groups: map[string]GroupCounts{}}
	t.Scheduled, t.Due, t.OldestDue, t.Messages, t.Keys = r.Count(), r.Count(), r.Score(), r.Count(), r.Count()
	if c.more == Details {
		d := r.List()
		t.NextDue, t.Windows, t.Bytes = d.Score(), d.Count(), estimated(t.Messages, d.Counts())
	}
	if !c.first {
		t = TopicCounts{Groups: t.Groups}
	}
	for _, name := range c.groups {
		g, err := c.readGroup(ctx, name, r.List())
		if err != nil {
			return err
		}
		t.Groups[name] = g
		t.Counts.Add(g.Counts)
	}
	sum.Add(t)
	return r.End()
}

func (c countCall) readGroup(ctx context.Context, name string, row script.Reply) (g GroupCounts, err error) {
	g.Ready, g.Postponed, g.InLine, g.OldestReady = row.Count(), row.Count(), row.Count(), row.Score()
	g.InDelivery, g.LeaseExpired, g.Dead = row.Count(), row.Count(), row.Count()
	switch c.more {
	case LiveConsumers:
		g.Consumers = row.Count()
		if row.Text() != "0" {
			all, err := Consumers(ctx, c.partition.Group(name))
			if err != nil {
				return g, err
			}
			g.Consumers = len(all)
		}
	case Details:
		g.NextDue, g.OldestUnacked, g.OldestDead = row.Score(), row.Text(), row.Score()
	}
	return g, row.End()
}

// estimated returns the estimated size of a number of bodies, from a sample.
func estimated(messages int, sample []int) int64 {
	sum := 0
	for _, size := range sample {
		sum += size
	}
	return int64(float64(sum) / float64(max(1, len(sample))) * float64(messages))
}

// ListedCounts has the counts of a listed topic that are cheap to read.
type ListedCounts struct {
	TopicCounts
	GroupList  GroupList // of the first partition
	Partitions int
	Err        error // if set, the other fields are not filled
}

// CountAll returns the counts of listed topics, with LiveConsumers, in the order of the topics, in few round trips. It also
// counts the scheduled messages that are due within each of some times from now on. After ctx has ended, it returns what was
// read until then.
func CountAll(ctx context.Context, s *queue.Store, topics []Listed, within []time.Duration) []ListedCounts {
	// Grouped by the master of the first partition, so that no master waits for another.
	first := func(t Listed) string { return s.Partition(t.Name, 0).Key(script.Scheduled, "") }
	return script.ByMaster(ctx, s.Client, topics, first, func(chunk []Listed) []ListedCounts {
		return countAll(ctx, s, chunk, within)
	})
}

func countAll(ctx context.Context, s *queue.Store, topics []Listed, within []time.Duration) []ListedCounts {
	all := groupLists(ctx, s, topics)
	var calls []countCall
	var of []*ListedCounts // of each call
	var list []script.Call
	for i := range all {
		for n := range all[i].Partitions {
			for _, c := range countCalls(queue.NewPartition(s, topics[i].Name, n), all[i].GroupList.All(), LiveConsumers) {
				calls, of, list = append(calls, c), append(of, &all[i]), append(list, c.call())
			}
		}
	}
	for i, a := range s.RunMany(ctx, list) {
		switch {
		case of[i].Err != nil:
		case a.Err != nil:
			of[i].Err = a.Err
		default:
			of[i].Err = calls[i].read(ctx, a.Reply, &of[i].TopicCounts)
		}
	}
	addHalted(ctx, s, topics, all)
	addWithin(ctx, s, topics, all, within)
	return all
}

// addHalted counts the halted ordering keys of the groups that may have some.
func addHalted(ctx context.Context, s *queue.Store, topics []Listed, all []ListedCounts) {
	var groups []string // of each call
	var of []*ListedCounts
	var list []script.Call
	for i := range all {
		for _, name := range Halting(all[i].GroupList, all[i].TopicCounts) {
			for n := range all[i].Partitions {
				groups, of = append(groups, name), append(of, &all[i])
				list = append(list, haltedCall(queue.NewPartition(s, topics[i].Name, n), name))
			}
		}
	}
	for i, a := range s.RunMany(ctx, list) {
		halted, err := haltedIn(a.Reply, a.Err)
		if of[i].Err == nil {
			of[i].Err = err
		}
		of[i].addHalted(groups[i], halted)
	}
}

// DueWithin counts the scheduled messages of a topic that are due within each of some times from at.
func DueWithin(ctx context.Context, s *queue.Store, topic string, partitions int, at time.Time, within []time.Duration) ([]int, error) {
	all := []ListedCounts{{TopicCounts: TopicCounts{Now: at}, Partitions: partitions}}
	addWithin(ctx, s, []Listed{{Name: topic}}, all, within)
	return all[0].Within, all[0].Err
}

// addWithin counts the scheduled messages that are due within each of some times.
func addWithin(ctx context.Context, s *queue.Store, topics []Listed, all []ListedCounts, within []time.Duration) {
	if len(within) == 0 {
		return // without a round trip
	}
	var into []*int // of each call
	var of []*ListedCounts
	var list []script.Call
	for i := range all {
		c := &all[i]
		if c.Err != nil {
			continue
		}
		c.Within = make([]int, len(within))
		for n := range c.Partitions {
			for j, d := range within {
				into, of = append(into, &c.Within[j]), append(of, c)
				list = append(list, dueCall(queue.NewPartition(s, topics[i].Name, n), c.Now.Add(d)))
			}
		}
	}
	for i, a := range s.RunMany(ctx, list) {
		n, _, err := countIn(a.Reply, a.Err)
		if of[i].Err == nil {
			of[i].Err = err
		}
		*into[i] += n
	}
}

// dueCall counts the scheduled messages that are due at a time.
func dueCall(p *queue.Partition, at time.Time) script.Call {
	return p.Call(countRangeScript, p.Keys(countRangeScript, ""), []any{string(InScheduled), "-inf", at.UnixMilli() + 1, ""})
}

// groupLists reads the groups and the numbers of partitions of the topics.
func groupLists(ctx context.Context, s *queue.Store, topics []Listed) []ListedCounts {
	calls := make([]script.Call, 0, 2*len(topics))
	for _, t := range topics {
		p := queue.NewPartition(s, t.Name, 0)
		calls = append(calls, groupListCall(p, "0"), p.PartitionsCall())
	}
	list := make([]ListedCounts, len(topics))
	answers := s.RunMany(ctx, calls)
	for i, t := range topics {
		c := &list[i]
		if c.Err = queue.Compatible(t.Version); c.Err == nil {
			c.GroupList, c.Err = groupListOf(ctx, s, t.Name, answers[2*i])
		}
		if c.Err == nil {
			c.Partitions, c.Err = partitionsIn(answers[2*i+1])
		}
	}
	return list
}

// groupListOf decodes the first page of a group list, and reads further pages.
func groupListOf(ctx context.Context, s *queue.Store, topic string, a script.Answer) (GroupList, error) {
	if a.Err != nil {
		return GroupList{}, a.Err
	}
	page := newGroupListPage()
	cursor, err := page.add(a.Reply)
	switch {
	case err != nil:
		return GroupList{}, err
	case cursor != "0":
		return ReadGroupList(ctx, queue.NewPartition(s, topic, 0))
	}
	return page.groupList, page.read()
}

func partitionsIn(a script.Answer) (int, error) {
	if a.Err != nil {
		return 0, a.Err
	}
	return queue.ReadPartitions(a.Reply)
}
