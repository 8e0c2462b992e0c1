package sim

import (
	"fmt"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// World is one simulation.
type World struct {
	// Tolerate names guarantees that may be broken, to find other broken ones.
	Tolerate map[string]bool
	// Measure records the lateness of each delivery.
	Measure bool
	// Events is how many of the last events a failure prints.
	Events int
	// Verbose traces extensions and empty claims as well.
	Verbose bool

	// immutable
	seed      uint64
	plan      Plan
	start     time.Time
	over      chan struct{} // closed at the end, or after a failure
	quieted   chan struct{} // closed when the faults end
	actors    sync.WaitGroup
	writers   sync.WaitGroup // the actors that publish
	operators sync.WaitGroup // the actor that pauses, limits and retires groups

	mu         sync.Mutex
	topic      *store.Topic
	trace      trace
	messages   map[string]*item
	groups     []*group
	consumers  []*consumer // consumers that have not ended
	publishers []*publisher
	raised     map[int]time.Time

	stalls      map[int]time.Time // partition -> until when it hangs
	storms      map[*process]time.Time
	refusals    map[*process]time.Time
	silentUntil map[*process]time.Time

	quiet   bool // faults have ended
	ended   bool
	failure *Failure
	active  time.Time // when the state of a message last changed
	stats   Stats
}

// Stats summarizes a simulation.
type Stats struct {
	Virtual    time.Duration
	Messages   int
	Deliveries int
	Commands   int
	Claims     int
	Late       []time.Duration // of each first delivery, with Measure
	Handled    map[string]int  // by consumer
}

// Failure is the first failure.
type Failure struct {
	Rule    string // the broken guarantee
	Seed    uint64
	Profile string
	At      time.Duration
	Reason  string
	Trace   string
}

func (f *Failure) Error() string {
	return fmt.Sprintf("profile %s, seed %d, after %v: %s: %s\n%s", f.Profile, f.Seed, f.At, f.Rule, f.Reason, f.Trace)
}

// NewWorld prepares a simulation. Call it in the bubble in which Run is called.
func NewWorld(seed uint64, plan Plan) *World {
	w := &World{
		Events: 60, seed: seed, plan: plan, start: time.Now(), over: make(chan struct{}), quieted: make(chan struct{}),
		topic: store.NewTopic(), messages: map[string]*item{}, raised: map[int]time.Time{},
		stalls: map[int]time.Time{}, storms: map[*process]time.Time{}, refusals: map[*process]time.Time{},
		silentUntil: map[*process]time.Time{}, active: time.Now(), stats: Stats{Handled: map[string]int{}},
	}
	w.topic.RaisePartitions(plan.Partitions)
	w.topic.Notify = w.notify
	for _, g := range plan.Groups {
		w.groups = append(w.groups, &group{name: g.Name, plan: g, ordered: plan.ordered(g), rules: map[int]*rules{}, turns: map[line]*turn{}})
	}
	return w
}

// end ends the simulation. The caller holds mu.
func (w *World) end() {
	if !w.ended {
		w.ended = true
		close(w.over)
	}
}

// fail keeps the first failure and ends the simulation. The caller
// holds mu.
func (w *World) fail(rule, id, reason string, args ...any) {
	if w.failure != nil || w.ended || w.Tolerate[rule] {
		return
	}
	reason = fmt.Sprintf(reason, args...)
	if id != "" {
		reason = alias(id) + " " + reason
	}
	w.failure = &Failure{
		Rule: rule, Seed: w.seed, Profile: w.plan.Profile, At: time.Since(w.start), Reason: reason,
		Trace: w.trace.report(w.start, id, w.Events),
	}
	w.end()
}

func (w *World) failNow(rule, reason string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(rule, "", reason, args...)
}

// log adds an event to the trace. The caller holds mu.
func (w *World) log(who, what string, args []any, ids ...string) {
	w.trace.add(event{time.Now(), who, what, args, ids})
	if len(ids) > 0 {
		w.active = time.Now()
	}
}

func (w *World) note(who, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log(who, what, nil)
}

func (w *World) isQuiet() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.quiet
}

func (w *World) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}
