package sim

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var simScaling = flag.Bool("sim.scaling", false, "print how claims, lateness and fairness change with the number of consumers, partitions and groups")

// scale is one row of the table.
type scale struct {
	consumers, partitions, groups int
	rate                          int           // messages a second
	handling                      time.Duration // of one message
}

// plan keeps each consumer busy for about half of the time.
func (s scale) plan() Plan {
	p := Plan{
		Profile: "scaling", Duration: s.duration(), Partitions: s.partitions, Strict: true,
		Lease: 30 * time.Second, Poll: 5 * time.Second, CloseTimeout: time.Second,
		Faults: Faults{Latency: 300 * time.Microsecond},
	}
	for g := range s.groups {
		plan := GroupPlan{Name: fmt.Sprintf("g%d", g)}
		for range s.consumers {
			plan.Consumers = append(plan.Consumers, ConsumerPlan{MaxInFlight: 1, Readers: 1, Paces: []Pace{
				{For: time.Hour, Min: s.handling / 2, Max: s.handling * 3 / 2},
			}})
		}
		p.Groups = append(p.Groups, plan)
	}
	gap := time.Second / time.Duration(s.rate)
	p.Publishers = []PublisherPlan{{From: time.Second, MinBatch: 1, MaxBatch: 1, MinGap: gap / 2, MaxGap: gap * 3 / 2}}
	return p
}

// duration is shorter with very many consumers to notify of each message.
func (s scale) duration() time.Duration {
	if s.consumers*s.groups > 100 {
		return 10 * time.Second
	}
	return 30 * time.Second
}

// TestScaling prints the table of docs/inside/performance.md, with more rows.
func TestScaling(t *testing.T) {
	if !*simScaling {
		t.Log("nothing is measured without -sim.scaling")
		return
	}
	fmt.Println("| consumers of a group | partitions | groups | messages/s | claims a delivery | p50 late | p99 late | least / most handled |")
	fmt.Println("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, s := range []scale{
		{1, 1, 1, 100, 5 * time.Millisecond},
		{10, 1, 1, 100, 50 * time.Millisecond},
		{100, 1, 1, 100, 500 * time.Millisecond},
		{1000, 1, 1, 100, 5 * time.Second},
		{10, 4, 1, 100, 50 * time.Millisecond},
		{10, 16, 1, 100, 50 * time.Millisecond},
		{10, 64, 1, 100, 50 * time.Millisecond},
		{2, 1, 10, 100, 10 * time.Millisecond},
		{2, 1, 100, 100, 10 * time.Millisecond},
	} {
		fmt.Println(s.row(t))
	}
}

func (s scale) row(t *testing.T) string {
	var stats Stats
	var failure *Failure
	synctest.Test(t, func(*testing.T) {
		w := NewWorld(1, s.plan())
		w.Measure, w.Tolerate = true, map[string]bool{"wait": true, "hold": true, "quiet": true}
		stats, failure = w.Run()
	})
	if failure != nil {
		t.Error(failure)
	}
	slices.Sort(stats.Late)
	late := func(part int) time.Duration {
		return stats.Late[(len(stats.Late)-1)*part/100].Round(10 * time.Microsecond)
	}
	cells := []string{
		fmt.Sprint(s.consumers), fmt.Sprint(s.partitions), fmt.Sprint(s.groups), fmt.Sprint(s.rate),
		fmt.Sprintf("%.2f", float64(stats.Claims)/float64(stats.Deliveries)),
		late(50).String(), late(99).String(), s.fairness(stats),
	}
	return "| " + strings.Join(cells, " | ") + " |"
}

// fairness compares the consumers of the first group.
func (s scale) fairness(stats Stats) string {
	least, most, who := 0, 0, 0
	for name, handled := range stats.Handled {
		if !strings.HasPrefix(name, "g0") {
			continue
		}
		if who == 0 || handled < least {
			least = handled
		}
		most = max(most, handled)
		who++
	}
	if who < s.consumers {
		least = 0
	}
	return fmt.Sprintf("%d / %d", least, most)
}
