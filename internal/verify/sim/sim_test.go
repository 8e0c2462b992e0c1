package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	simSeed     = flag.Uint64("sim.seed", 0, "replay this seed of -sim.profile")
	simProfile  = flag.String("sim.profile", "", "only this profile")
	simTime     = flag.Duration("sim.time", 0, "simulate for this long, and print how much that was")
	simTries    = flag.Int("sim.tries", 20, "how often to try a replayed seed")
	simTolerate = flag.String("sim.tolerate", "", "promises that may be broken, separated by commas: wait, hold, order, ...")
	simEvents   = flag.Int("sim.events", 60, "how many of the last events to print")
	simShort    = flag.Duration("sim.short", 0, "end the faults of a seed after this much virtual time, if not before")
	simVerbose  = flag.Bool("sim.verbose", false, "trace empty claims as well")
)

// simulate runs one seed in a bubble of its own.
func simulate(t *testing.T, profile string, seed uint64) (stats Stats, failure *Failure) {
	t.Helper()
	plan := PlanOf(profile, seed)
	if plan == nil {
		t.Fatalf("no profile %q; the profiles are %v", profile, Profiles)
	}
	if *simShort > 0 {
		plan.Duration = min(plan.Duration, *simShort)
	}
	synctest.Test(t, func(*testing.T) {
		w := NewWorld(seed, *plan)
		w.Verbose, w.Events, w.Tolerate = *simVerbose, *simEvents, map[string]bool{}
		for _, rule := range strings.Split(*simTolerate, ",") {
			w.Tolerate[rule] = true
		}
		stats, failure = w.Run()
	})
	return stats, failure
}

func TestSimulation(t *testing.T) {
	switch {
	case *simSeed != 0:
		replay(t)
	case *simTime != 0:
		endure(t)
	default:
		short(t)
	}
}

// replay runs a seed until it fails again.
func replay(t *testing.T) {
	failed := 0
	for range *simTries {
		if _, failure := simulate(t, *simProfile, *simSeed); failure != nil {
			if failed++; failed == 1 {
				t.Error(failure)
			}
		}
	}
	t.Logf("seed %d of profile %s failed in %d of %d tries", *simSeed, *simProfile, failed, *simTries)
}

// replayText describes a failure, and how to replay it.
func replayText(f *Failure) string {
	return fmt.Sprintf("%v\nreplay: go test ./internal/verify/sim -run TestSimulation -sim.profile %s -sim.seed %d -sim.short %v",
		f, f.Profile, f.Seed, *simShort)
}

// profiles returns the profiles to run.
func profiles() []string {
	if *simProfile != "" {
		return []string{*simProfile}
	}
	return Profiles
}

// short runs a few seeds, some of them new.
func short(t *testing.T) {
	if *simShort == 0 {
		*simShort = 20 * time.Second
	}
	for _, profile := range profiles() {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			for _, seed := range []uint64{1, 2, rand.Uint64()} {
				if _, failure := simulate(t, profile, seed); failure != nil {
					t.Fatal(replayText(failure))
				}
			}
		})
	}
}

// endure runs new seeds of all profiles for -sim.time.
func endure(t *testing.T) {
	atOnce := min(runtime.GOMAXPROCS(0), len(profiles()))
	share := *simTime * time.Duration(atOnce) / time.Duration(len(profiles()))
	for _, profile := range profiles() {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			var total Stats
			runs, start, seed := 0, time.Now(), rand.Uint64()
			for ; time.Since(start) < share; runs++ {
				stats, failure := simulate(t, profile, seed+uint64(runs))
				if failure != nil {
					t.Error(replayText(failure))
					return
				}
				total.Virtual += stats.Virtual
				total.Deliveries += stats.Deliveries
				total.Commands += stats.Commands
			}
			took := time.Since(start)
			fmt.Printf("%-8s %6d runs, %8.1f h of virtual time (%6.1f h in a minute), %9d deliveries, %9d commands\n",
				profile, runs, total.Virtual.Hours(), total.Virtual.Hours()/took.Minutes(), total.Deliveries, total.Commands)
		})
	}
}
