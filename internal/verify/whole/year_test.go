package whole

import (
	"flag"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

var (
	yearDays  = flag.Int("year.days", 0, "how many days TestYear lasts; 0: a few, with few processes")
	yearSmall = flag.Bool("year.small", false, "10 processes and 50 topics, also with -year.days")
	yearSeed  = flag.Uint64("year.seed", 0, "the seed of TestYear; 0: a new one")
)

// year is a service in use for a year: its processes, its topics, and all that happens to them.
type year struct {
	*diary
	t         *testing.T
	seed      uint64
	processes int
	topics    []yearTopic
	server    *miniredis.Miniredis
	network   *network
	client    redis.UniversalClient // of operators, and for checks
	admin     *admin.Admin

	programs  []*program           // guarded by mu; those that run
	runs      []int                // guarded by mu; how often each has been started
	past      []*program           // guarded by mu; those that have ended in the last days
	schedules map[string]time.Time // guarded by mu; when each was removed, zero: it was not
	passed    time.Time            // until when keys have expired
	report    report               // changed between the days' other events
	used      []usage              // at the end of each day
}

// newYear starts a Redis in memory as redisdelaytest does, but for its clock of keys that expire: that looks at all keys for
// each command. Here, pass lets it go on several times a day, and what expires lasts for a day at least.
func newYear(t *testing.T, seed uint64, processes, topics int) *year {
	server := miniredis.NewMiniRedis()
	t.Cleanup(server.Close)
	y := &year{
		diary: &diary{start: time.Now(), tracked: map[string]*trackedMessage{}, ticks: map[string]tickBook{}, failures: map[string]*broken{}},
		t:     t, seed: seed, processes: processes, topics: yearTopics(topics), server: server, passed: time.Now(),
		programs: make([]*program, processes), runs: make([]int, processes), schedules: map[string]time.Time{},
	}
	y.network = &network{dial: server.Dial, unknown: map[string]bool{}}
	operators := y.network.process("operators", rngOf(seed, "operators"))
	operators.beside = true
	t.Cleanup(func() { _ = operators.client.Close() })
	y.client = operators.client
	var err error
	y.admin, err = admin.New(admin.Config{Client: y.client})
	require.NoError(t, err)
	return y
}

// change changes what is guarded by mu.
func (y *year) change(do func()) {
	y.mu.Lock()
	defer y.mu.Unlock()
	do()
}

// at waits until a time of a day.
func (y *year) at(day int, after time.Duration) {
	wait(time.Until(y.start.Add(time.Duration(day)*24*time.Hour + after)))
	y.pass()
}

// pass lets the keys of Redis expire whose time is over.
func (y *year) pass() {
	y.server.FastForward(time.Since(y.passed))
	y.passed = time.Now()
}

// play lets days pass.
func (y *year) play(days int) {
	for number := range y.processes {
		y.launch(number)
	}
	for day := range days {
		y.at(day, deploys)
		y.deploy(day)
		y.at(day, trades)
		y.trade(day)
		y.at(day, operates)
		y.operateGroups(day)
		y.at(day, mops)
		y.cleanUp(day)
		y.at(day, takesStock)
		y.checkDay(day)
	}
	for _, p := range y.programs {
		p.end(false)
	}
	y.stats.Requests, _ = y.network.counted()
}

// deploy replaces a fifth of the processes, one by one. One of ten is killed.
func (y *year) deploy(day int) {
	if day == 0 {
		return
	}
	for number := day % rotation; number < y.processes; number += rotation {
		killed := (number/rotation+day)%10 == 0
		if killed {
			y.troubled(yearLease + 10*time.Minute)
			y.change(func() { y.stats.Crashes++ })
		}
		y.programs[number].end(killed)
		wait(10 * time.Second)
		y.launch(number)
		y.change(func() { y.stats.Deployments++ })
	}
}

// trade lets all programs publish, with an outage on some days.
func (y *year) trade(day int) {
	var trading sync.WaitGroup
	for _, p := range y.programs {
		trading.Go(func() { p.labeled(func() { p.trade(day) }) })
	}
	if kind, is := outageOn(day); is {
		wait(busy / 3)
		y.outage(kind)
	}
	trading.Wait()
}

// checkDay checks everything at the end of a day.
func (y *year) checkDay(day int) {
	y.checkOverdue(y.topics)
	y.checkTicks(day)
	fields := y.takeStock()
	y.checkConnections()
	if day%7 == 6 || day < 3 {
		y.checkGoroutines()
	}
	y.change(func() {
		y.past = slices.DeleteFunc(y.past, func(p *program) bool { return time.Since(p.ended) > remembers })
		maps.DeleteFunc(y.schedules, func(_ string, removed time.Time) bool {
			return !removed.IsZero() && time.Since(removed) > remembers
		})
	})
	y.measure(fields)
	if months := len(y.used) / monthly; len(y.used)%monthly == 0 {
		y.t.Logf("month %d: %+v", months, y.usual(months-1))
	}
}

// checkConnections checks that programs that have ended have no connection.
func (y *year) checkConnections() {
	live := y.liveNames()
	for _, l := range y.network.all() {
		if !live[l.process.name] {
			y.unowned("connection", "of %s, which has ended", l.process.name)
		}
	}
}

func (y *year) liveNames() map[string]bool {
	live := map[string]bool{"operators": true}
	for _, p := range y.programs {
		live[p.name] = true
	}
	return live
}

// checkGoroutines checks that programs that have ended have no goroutine: each has the name of its program.
func (y *year) checkGoroutines() {
	var text strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		y.fail("call", "the profile of goroutines: %v", err)
	}
	live := y.liveNames()
	for part := range strings.SplitSeq(text.String(), "\n\n") {
		_, label, found := strings.Cut(part, `# labels: {"program":"`)
		name, _, _ := strings.Cut(label, `"`)
		if found && !live[name] {
			y.unowned("goroutine", "of %s, which has ended:\n%s", name, part)
		}
	}
}

// usage is what there is at the end of a day: in Redis fields and members of all keys, in the process kB of live heap,
// connections and goroutines.
type usage struct{ fields, heap, lines, routines int }

// measure notes the usage.
func (y *year) measure(fields int) {
	var memory runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers of the first one have freed
	runtime.ReadMemStats(&memory)
	y.used = append(y.used, usage{fields, int(memory.HeapAlloc / 1000), len(y.network.all()), runtime.NumGoroutine()})
}

// TestYear is a year of a service in use, in minutes; without -year.days a few days.
func TestYear(t *testing.T) {
	days, processes, topics, seed := 4, 10, 50, *yearSeed
	if *yearDays > 0 {
		days = *yearDays
		defer debug.SetGCPercent(debug.SetGCPercent(400)) // half of the time, otherwise, with so many stacks
		if !*yearSmall {
			processes, topics = 50, 200
		}
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	logging.Disable() // each failed dial of an outage is a line
	began := time.Now()
	var y *year
	synctest.Test(t, func(t *testing.T) {
		y = newYear(t, seed, processes, topics)
		y.play(days)
		for _, rule := range slices.Sorted(maps.Keys(y.failures)) { // before a goroutine that is left ends the test
			t.Errorf("%s (%d times): %s", rule, y.failures[rule].times, y.failures[rule].first)
		}
	})
	t.Logf("%d h of virtual time: %d days of %d processes and %d topics in %v, seed %d: %+v",
		days*24, days, processes, topics, time.Since(began).Round(time.Second), seed, y.stats)
	y.compare(t)
}

// monthly are the four weeks after which everything that is seasonal comes again, also outages, killed processes
// and the operators' reports.
const monthly = 28

// compare compares months: nothing may grow from the second one, when pools and caches are full, to the last.
func (y *year) compare(t *testing.T) {
	months := len(y.used) / monthly
	if months < 4 {
		return
	}
	early, late := y.usual(1), y.usual(months-1)
	for _, c := range []struct {
		name        string
		early, late int
	}{
		{"fields in Redis", early.fields, late.fields},
		{"kB of heap", early.heap, late.heap},
		{"connections", early.lines, late.lines},
		{"goroutines", early.routines, late.routines},
	} {
		if c.late > c.early*11/10 { // what differs from month to month by chance is a few per cent
			t.Errorf("%s: %d in the second month, %d in the last", c.name, c.early, c.late)
		}
	}
}

// usual is the usage of a month: medians, since its days differ.
func (y *year) usual(month int) usage {
	days := y.used[month*monthly : (month+1)*monthly]
	median := func(figure func(usage) int) int {
		var list []int
		for _, u := range days {
			list = append(list, figure(u))
		}
		slices.Sort(list)
		return list[len(list)/2]
	}
	return usage{
		fields: median(func(u usage) int { return u.fields }), heap: median(func(u usage) int { return u.heap }),
		lines: median(func(u usage) int { return u.lines }), routines: median(func(u usage) int { return u.routines }),
	}
}
