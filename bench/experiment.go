package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// runTimeout is how long one run may take before missing messages count as lost, unless the experiment has its own limit.
const runTimeout = 3 * time.Minute

// experiment is work that contestants do in turns.
type experiment struct {
	name        string
	what        string        // a sentence or two for the report
	rounds      int           // at most; 0 for as many as the flag says
	limit       time.Duration // of one run; 0 for runTimeout
	distance    time.Duration // added to each round trip to Redis
	contestants []contestant
	bars        []bar
}

// contestant is one side of an experiment. It runs on an empty Redis.
type contestant struct {
	name string
	run  func(ctx context.Context, l *lab) (sample, error)
}

// ours is the name of redisdelay as a contestant.
const ours = "redisdelay"

// reading is one measured value of a run.
type reading struct {
	name, unit string
	value      float64
}

// sample has all measured values of a run.
type sample []reading

// bar is a goal that a reading must reach. Without a bound, the reading is only for comparison.
type bar struct {
	reading string
	of      string   // a contestant
	against []string // contestants; the reading is compared with the best of them in the same round; none for an absolute bar
	least   float64  // 0 for none
	most    float64  // 0 for none
	goal    string   // why the bar may be missed; "" if it must be met
}

// outcome is an experiment with its measurements, by contestant and round.
type outcome struct {
	experiment
	samples map[string][]sample
}

func (e experiment) run(ctx context.Context, l *lab, rounds int) (outcome, error) {
	if e.rounds > 0 {
		rounds = min(rounds, e.rounds)
	}
	o := outcome{e, map[string][]sample{}}
	for round := range rounds {
		for _, c := range e.contestants {
			fmt.Fprintf(os.Stderr, "%s %s, round %d of %d\n", e.name, c.name, round+1, rounds)
			s, err := e.runOne(ctx, l, c)
			if err != nil {
				return o, fmt.Errorf("%s, %s: %w", e.name, c.name, err)
			}
			o.samples[c.name] = append(o.samples[c.name], s)
		}
	}
	return o, nil
}

func (e experiment) runOne(ctx context.Context, l *lab, c contestant) (sample, error) {
	if err := errors.Join(l.place(ctx, e.distance), l.reset(ctx, e.name, c.name)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(e.limit, runTimeout))
	defer cancel()
	return c.run(ctx, l)
}

func (s sample) get(name string) float64 {
	i := slices.IndexFunc(s, func(r reading) bool { return r.name == name })
	return s[i].value
}

// values returns a contestant's readings, round by round.
func (o outcome) values(contestant, reading string) []float64 {
	var list []float64
	for _, s := range o.samples[contestant] {
		list = append(list, s.get(reading))
	}
	return list
}

// measured returns the values to compare with a bar, round by round: the reading itself, or its
// ratio to the best of the other contestants in the same round.
func (o outcome) measured(b bar) []float64 {
	list := o.values(b.of, b.reading)
	for i := range list {
		if len(b.against) > 0 {
			list[i] /= o.best(b, i)
		}
	}
	return list
}

func (o outcome) best(b bar, round int) float64 {
	var others []float64
	for _, name := range b.against {
		others = append(others, o.samples[name][round].get(b.reading))
	}
	if b.most > 0 {
		return slices.Min(others)
	}
	return slices.Max(others)
}

// met reports whether the median meets the bar.
func (o outcome) met(b bar) bool {
	median := spreadOf(o.measured(b)).median
	return median >= b.least && (b.most == 0 || median <= b.most)
}

// spread summarizes the rounds.
type spread struct{ median, least, most float64 }

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}
