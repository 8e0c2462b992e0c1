package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// gaugeGroups is how many groups one call counts at most: each may have a hundred consumers
// of some KiB.
const gaugeGroups = 10

// TopicGauge is what a topic has, as far as it is cheap to count.
type TopicGauge struct {
	Roster     Roster // of the first partition, which decides
	Partitions []Gauge
	Err        error // why all else is missing
}

// Gauge is what a partition has.
type Gauge struct {
	Now            time.Time
	Scheduled, Due int
	OldestDue      time.Time // zero if there is none
	Keys           int
	Groups         map[string]GroupGauge // those that are retired included
}

// GroupGauge is what a partition has for a group.
type GroupGauge struct {
	Queued, Later       int // due, and due later
	OldestQueued        time.Time
	InDelivery, Expired int
	Dead                int
	Consumers           int // that are alive
}

// Gauges counts what topics that are listed have, in the order of the topics. It changes
// nothing. Once ctx has ended, it returns what was read until then.
func (s *Store) Gauges(ctx context.Context, topics []Listed) []TopicGauge {
	// By the master of the first partition, so that none waits for the rosters of another.
	first := func(t Listed) string { return newNames(s.prefix, t.Name, 0).key(scheduled) }
	return byMaster(ctx, s, topics, first, func(_ *redis.Client, some []Listed) []TopicGauge {
		return s.gauges(ctx, some)
	})
}

func (s *Store) gauges(ctx context.Context, topics []Listed) []TopicGauge {
	gauges := make([]TopicGauge, len(topics))
	parts := s.rosters(ctx, topics, gauges)
	var calls []gaugeCall
	for i, g := range gauges {
		for n := range parts[i] {
			p := newPartition(s, topics[i].Name, n)
			gauges[i].Partitions = append(gauges[i].Partitions, Gauge{Groups: map[string]GroupGauge{}})
			calls = append(calls, gaugeCalls(i, p, g.Roster.All())...)
		}
	}
	list := make([]scriptCall, len(calls))
	for i, c := range calls {
		list[i] = c.partition.call(gaugeScript, gaugeScript.keys(c.partition.names, "", c.groups), nil)
	}
	for i, a := range s.runMany(ctx, list) {
		c := calls[i]
		g := &gauges[c.topic]
		if g.Err == nil {
			g.Err = c.read(ctx, a, &g.Partitions[c.partition.number])
		}
	}
	return gauges
}

// rosters reads which groups the topics have, and returns how many partitions.
func (s *Store) rosters(ctx context.Context, topics []Listed, gauges []TopicGauge) (partitions []int) {
	calls := make([]scriptCall, 0, 2*len(topics))
	for _, t := range topics {
		p := newPartition(s, t.Name, 0)
		calls = append(calls, p.rosterCall("0"), p.call(raiseScript, raiseScript.keys(p.names, "", nil), []any{1, 0, p.channel()}))
	}
	partitions = make([]int, len(topics))
	answers := s.runMany(ctx, calls)
	for i, t := range topics {
		g := &gauges[i]
		if g.Err = compatible(t.Version); g.Err == nil {
			g.Roster, g.Err = s.rosterOf(ctx, t.Name, answers[2*i])
		}
		if g.Err == nil {
			partitions[i], g.Err = partitionsOf(answers[2*i+1])
		}
	}
	return partitions
}

// rosterOf reads the first answer of a roster, and the rest if there is more of it.
func (s *Store) rosterOf(ctx context.Context, topic string, a answer) (Roster, error) {
	if a.err != nil {
		return Roster{}, a.err
	}
	page := newRosterPage()
	cursor, err := page.add(a.reply)
	switch {
	case err != nil:
		return Roster{}, err
	case cursor != "0":
		return newPartition(s, topic, 0).Roster(ctx)
	}
	return page.roster, page.read()
}

func partitionsOf(a answer) (int, error) {
	if a.err != nil {
		return 0, a.err
	}
	if len(a.reply) > 0 {
		if n, ok := a.reply[0].(int64); ok && n > 0 && n <= MaxPartitions {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("%w: partitions in %v", errReply, a.reply)
}

// All are the names of all groups, sorted, those that are retired included.
func (r Roster) All() []string {
	names := append(slices.Collect(maps.Keys(r.Retired)), r.Groups...)
	slices.Sort(names)
	return slices.Compact(names)
}

// gaugeCall counts what a partition has for some groups.
type gaugeCall struct {
	topic     int // its index
	partition *Partition
	groups    []string
}

func gaugeCalls(topic int, p *Partition, groups []string) []gaugeCall {
	calls := []gaugeCall{{topic, p, groups[:min(len(groups), gaugeGroups)]}}
	for from := gaugeGroups; from < len(groups); from += gaugeGroups {
		calls = append(calls, gaugeCall{topic, p, groups[from:min(from+gaugeGroups, len(groups))]})
	}
	return calls
}

// read reads an answer into a gauge.
func (c gaugeCall) read(ctx context.Context, a answer, g *Gauge) error {
	if a.err != nil {
		return a.err
	}
	r := reader{reply: a.reply}
	g.Now, g.Scheduled, g.Due, g.OldestDue = r.time(), r.count(), r.count(), r.score()
	g.Keys = r.count()
	for _, name := range c.groups {
		row := reader{reply: r.list(), err: r.err}
		one := GroupGauge{
			Queued: row.count(), Later: row.count(), OldestQueued: row.score(), InDelivery: row.count(),
			Expired: row.count(), Dead: row.count(), Consumers: row.count(),
		}
		cursor := row.text()
		if r.err = row.end(); r.err == nil && cursor != "0" {
			all, err := c.partition.Group(name).Consumers(ctx)
			one.Consumers, r.err = len(all), err
		}
		g.Groups[name] = one
	}
	return r.end()
}
