package inspect

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
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
func Gauges(ctx context.Context, s *queue.Store, topics []Listed) []TopicGauge {
	// By the master of the first partition, so that none waits for the rosters of another.
	first := func(t Listed) string { return s.Partition(t.Name, 0).Key(script.Scheduled, "") }
	return script.ByMaster(ctx, s.Client, topics, first, func(some []Listed) []TopicGauge {
		return gauges(ctx, s, some)
	})
}

func gauges(ctx context.Context, s *queue.Store, topics []Listed) []TopicGauge {
	gauges := make([]TopicGauge, len(topics))
	parts := rosters(ctx, s, topics, gauges)
	var calls []gaugeCall
	for i, g := range gauges {
		for n := range parts[i] {
			p := queue.NewPartition(s, topics[i].Name, n)
			gauges[i].Partitions = append(gauges[i].Partitions, Gauge{Groups: map[string]GroupGauge{}})
			calls = append(calls, gaugeCalls(i, p, g.Roster.All())...)
		}
	}
	list := make([]script.Call, len(calls))
	for i, c := range calls {
		list[i] = c.partition.Call(gaugeScript, c.partition.Keys(gaugeScript, "", c.groups...), nil)
	}
	for i, a := range s.RunMany(ctx, list) {
		c := calls[i]
		g := &gauges[c.topic]
		if g.Err == nil {
			g.Err = c.read(ctx, a, &g.Partitions[c.partition.Number()])
		}
	}
	return gauges
}

// rosters reads which groups the topics have, and returns how many partitions.
func rosters(ctx context.Context, s *queue.Store, topics []Listed, gauges []TopicGauge) (partitions []int) {
	calls := make([]script.Call, 0, 2*len(topics))
	for _, t := range topics {
		p := queue.NewPartition(s, t.Name, 0)
		calls = append(calls, rosterCall(p, "0"), p.PartitionsCall())
	}
	partitions = make([]int, len(topics))
	answers := s.RunMany(ctx, calls)
	for i, t := range topics {
		g := &gauges[i]
		if g.Err = queue.Compatible(t.Version); g.Err == nil {
			g.Roster, g.Err = rosterOf(ctx, s, t.Name, answers[2*i])
		}
		if g.Err == nil {
			partitions[i], g.Err = partitionsIn(answers[2*i+1])
		}
	}
	return partitions
}

// rosterOf reads the first answer of a roster, and the rest if there is more of it.
func rosterOf(ctx context.Context, s *queue.Store, topic string, a script.Answer) (Roster, error) {
	if a.Err != nil {
		return Roster{}, a.Err
	}
	page := newRosterPage()
	cursor, err := page.add(a.Reply)
	switch {
	case err != nil:
		return Roster{}, err
	case cursor != "0":
		return ReadRoster(ctx, queue.NewPartition(s, topic, 0))
	}
	return page.roster, page.read()
}

func partitionsIn(a script.Answer) (int, error) {
	if a.Err != nil {
		return 0, a.Err
	}
	return queue.ReadPartitions(a.Reply)
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
	partition *queue.Partition
	groups    []string
}

func gaugeCalls(topic int, p *queue.Partition, groups []string) []gaugeCall {
	calls := []gaugeCall{{topic, p, groups[:min(len(groups), gaugeGroups)]}}
	for from := gaugeGroups; from < len(groups); from += gaugeGroups {
		calls = append(calls, gaugeCall{topic, p, groups[from:min(from+gaugeGroups, len(groups))]})
	}
	return calls
}

// read reads an answer into a gauge.
func (c gaugeCall) read(ctx context.Context, a script.Answer, g *Gauge) error {
	if a.Err != nil {
		return a.Err
	}
	r := a.Reply
	g.Now, g.Scheduled, g.Due, g.OldestDue = r.Time(), r.Count(), r.Count(), r.Score()
	g.Keys = r.Count()
	for _, name := range c.groups {
		row := r.List()
		one := GroupGauge{
			Queued: row.Count(), Later: row.Count(), OldestQueued: row.Score(), InDelivery: row.Count(),
			Expired: row.Count(), Dead: row.Count(), Consumers: row.Count(),
		}
		cursor := row.Text()
		if err := row.End(); err != nil {
			return err
		}
		if cursor != "0" {
			all, err := Consumers(ctx, c.partition.Group(name))
			if err != nil {
				return err
			}
			one.Consumers = len(all)
		}
		g.Groups[name] = one
	}
	return r.End()
}
