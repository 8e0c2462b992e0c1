package whole

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

var (
	wholeSeed    = flag.Uint64("whole.seed", 0, "replay this seed of -whole.profile")
	wholeProfile = flag.String("whole.profile", "", "only this profile")
	wholeTime    = flag.Duration("whole.time", 0, "simulate for this long, and print how much that was")
	wholeTries   = flag.Int("whole.tries", 5, "how often to try a replayed seed")
	wholeShort   = flag.Bool("whole.short", false, "make all runs short, as they are without -whole.seed and -whole.time")
	wholeTrace   = flag.Bool("whole.trace", false, "print each request that is sent to Redis")
)

// simulate plays one seed in a bubble of its own, and returns the rules that were broken.
func simulate(t *testing.T, profile string, seed uint64) (Stats, map[string]*broken) {
	t.Helper()
	plan := planOf(profile)
	if plan == nil {
		t.Fatalf("no profile %q", profile)
	}
	if *wholeShort {
		plan.shorten()
	}
	logging.Disable() // go-redis would log each connection that is refused
	var w *world
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, seed, plan)
		w.run()
	})
	return w.stats, w.failures
}

func describe(profile string, seed uint64, failures map[string]*broken) string {
	var text strings.Builder
	for _, rule := range slices.Sorted(maps.Keys(failures)) {
		fmt.Fprintf(&text, "%s (%d times): %s\n", rule, failures[rule].times, failures[rule].first)
	}
	fmt.Fprintf(&text, "replay: go test ./internal/verify/whole -run TestWhole -whole.profile %q -whole.seed %d -whole.short=%t",
		profile, seed, *wholeShort)
	return text.String()
}

// sample is how many profiles a run without flags plays.
const sample = 4

// TestWhole plays one seed of a few profiles, which it chooses at random, or what the flags say.
func TestWhole(t *testing.T) {
	chosen := profiles
	if *wholeSeed == 0 && *wholeTime == 0 {
		*wholeShort = true
		chosen = slices.Clone(profiles)
		rand.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		if *wholeProfile == "" {
			chosen = chosen[:sample]
		}
	}
	for _, profile := range chosen {
		if *wholeProfile != "" && *wholeProfile != profile.name {
			continue
		}
		t.Run(profile.name, func(t *testing.T) {
			switch {
			case *wholeSeed != 0:
				replay(t, profile.name)
			case *wholeTime != 0:
				endure(t, profile.name)
			default:
				seed := rand.Uint64()
				if _, failures := simulate(t, profile.name, seed); len(failures) > 0 {
					t.Error(describe(profile.name, seed, failures))
				}
			}
		})
	}
}

// replay tries a seed again.
func replay(t *testing.T, profile string) {
	for range *wholeTries {
		if stats, failures := simulate(t, profile, *wholeSeed); len(failures) > 0 {
			t.Errorf("%s\n%+v", describe(profile, *wholeSeed, failures), stats)
		}
	}
}

// endure plays new seeds for a profile's share of -whole.time.
func endure(t *testing.T, profile string) {
	share := *wholeTime
	if *wholeProfile == "" {
		share /= time.Duration(len(profiles))
	}
	var total Stats
	runs, seed, start := 0, rand.Uint64(), time.Now()
	for ; time.Since(start) < share; runs++ {
		stats, failures := simulate(t, profile, seed+uint64(runs))
		if len(failures) > 0 {
			t.Error(describe(profile, seed+uint64(runs), failures))
			return
		}
		total.add(stats)
	}
	fmt.Printf("%-14s %5d runs %+v\n", profile, runs, total)
}

func (s *Stats) add(o Stats) {
	s.Virtual += o.Virtual
	s.Published += o.Published
	s.Delivered += o.Delivered
	s.Duplicates += o.Duplicates
	s.Visitors += o.Visitors
	s.Faults += o.Faults
	s.Requests += o.Requests
	s.MostLate = max(s.MostLate, o.MostLate)
}
