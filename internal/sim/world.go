package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/sim/store"
)

// World is one simulation.
type World struct {
	// Tolerate names promises that may be broken, to see which others are.
	Tolerate map[string]bool
	// Measure has the lateness of each delivery kept.
	Measure bool
	// Events is how many of the last events a failure tells.
	Events int
	// Verbose has claims that find nothing and extensions traced as well.
	Verbose bool

	// immutable
	seed    uint64
	plan    Plan
	start   time.Time
	over    chan struct{} // closed at the end, or when something is wrong
	quieted chan struct{} // closed when the faults end
	actors  sync.WaitGroup
	writers sync.WaitGroup // the actors that publish

	mu         sync.Mutex
	topic      *store.Topic
	trace      trace
	messages   map[string]*item
	groups     []*group
	consumers  []*consumer // those that have not ended
	publishers []*publisher
	raised     map[int]time.Time

	stalls   map[int]time.Time // until when partitions hang
	storms   map[*process]time.Time
	refusals map[*process]time.Time
	deaf     map[*process]time.Time

	quiet   bool // faults have ended
	ended   bool
	failure *Failure
	active  time.Time // when anything happened to a message
	stats   Stats
}

// Stats sums up a simulation.
type Stats struct {
	Virtual    time.Duration
	Messages   int
	Deliveries int
	Commands   int
	Claims     int
	Late       []time.Duration // of each first delivery, with Measure
	Handled    map[string]int  // by consumer
}

// Failure is what went wrong first.
type Failure struct {
	Rule    string // the promise that was broken
	Seed    uint64
	Profile string
	At      time.Duration
	Reason  string
	Trace   string
}

func (f *Failure) Error() string {
	return fmt.Sprintf("profile %s, seed %d, after %v: %s: %s\n%s", f.Profile, f.Seed, f.At, f.Rule, f.Reason, f.Trace)
}

// NewWorld prepares a simulation. It must be run in the bubble it was made in.
func NewWorld(seed uint64, plan Plan) *World {
	w := &World{
		Events: 60, seed: seed, plan: plan, start: time.Now(), over: make(chan struct{}), quieted: make(chan struct{}),
		topic: store.NewTopic(), messages: map[string]*item{}, raised: map[int]time.Time{},
		stalls: map[int]time.Time{}, storms: map[*process]time.Time{}, refusals: map[*process]time.Time{},
		deaf: map[*process]time.Time{}, active: time.Now(), stats: Stats{Handled: map[string]int{}},
	}
	w.topic.Raise(plan.Partitions)
	w.topic.Notify = w.notify
	for _, g := range plan.Groups {
		w.groups = append(w.groups, &group{name: g.Name, plan: g, ordered: plan.ordered(g)})
	}
	return w
}

// Run plays the plan and returns what went wrong, if anything.
func (w *World) Run() (Stats, *Failure) {
	end := newProcess("sim", w.over)
	pause := func(d time.Duration) { _ = end.rest(context.Background(), d, nil) } // over or not
	for _, g := range w.groups {
		for n, c := range g.plan.Consumers {
			w.actors.Go(func() { w.manage(fmt.Sprintf("%s%s", g.name, letters(n)), g, c) })
		}
	}
	for i, p := range w.plan.Publishers {
		w.publish(newPublisher(w, i+1, p))
	}
	w.actors.Go(w.watch)
	w.actors.Go(w.weather)
	pause(w.plan.Duration / 2)
	w.raise()
	pause(w.plan.Duration / 2)
	w.calm()
	w.writers.Wait()
	w.settle(pause)
	w.closeAll(pause)
	return w.finish()
}

func (w *World) publish(p *publisher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.publishers = append(w.publishers, p)
	w.writers.Go(p.run)
}

// letters numbers consumers: A to Z, then AA and so on.
func letters(n int) string {
	if n < 26 {
		return string(rune('A' + n))
	}
	return letters(n/26-1) + string(rune('A'+n%26))
}

// manage keeps one consumer in place: another comes when it has gone.
func (w *World) manage(name string, g *group, plan ConsumerPlan) {
	p := newProcess(name, w.over)
	r := luck(w.seed, name)
	if p.rest(context.Background(), g.plan.Joins, w.quieted) != nil {
		return
	}
	for n := 1; !w.isOver(); n++ {
		c := w.join(fmt.Sprintf("%s%d", name, n), g, plan)
		select {
		case <-c.dead:
		case <-c.ended:
		case <-w.over:
			c.cancel()
		}
		w.forget(c)
		if p.rest(context.Background(), between(r, 0, 3*time.Second), w.quieted) != nil {
			return
		}
	}
}

// forget takes a consumer that has ended from those that could do something.
func (w *World) forget(c *consumer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.consumers = without(w.consumers, c)
	c.group.consumers = without(c.group.consumers, c)
}

func without(list []*consumer, c *consumer) []*consumer {
	var left []*consumer
	for _, other := range list {
		if other != c {
			left = append(left, other)
		}
	}
	return left
}

// raise adds the partitions that come in the middle.
func (w *World) raise() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := w.plan.Partitions; n < w.plan.Partitions+w.plan.Raise; n++ {
		w.raised[n] = time.Now()
	}
	w.topic.Raise(w.plan.Partitions + w.plan.Raise)
}

// calm ends all faults and all that is published.
func (w *World) calm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet = true
	w.log("sim", "faults end", nil)
	clear(w.stalls)
	clear(w.storms)
	clear(w.refusals)
	clear(w.deaf)
	for _, c := range w.consumers {
		if c.stopped {
			c.stopped, c.wentOn = false, time.Now()
			c.goOn()
		}
	}
	close(w.quieted)
}

// settle waits until all is delivered.
func (w *World) settle(pause func(time.Duration)) {
	most := time.Duration(0)
	for _, p := range w.plan.Publishers {
		most = max(most, p.MostDelay)
	}
	deadline := time.Now().Add(most + w.plan.Lease + w.plan.Poll + 2*recovery)
	for !w.isOver() {
		left := w.left()
		if left == nil {
			return
		}
		if time.Now().After(deadline) {
			w.mu.Lock()
			w.fail("lost", left.m.id, "not delivered to %s after the faults have ended", left.group.name)
			w.mu.Unlock()
			return
		}
		pause(250 * time.Millisecond)
	}
}

// left is a message that some group still has to handle.
func (w *World) left() *track {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.groups {
		if len(g.open) > 0 {
			return g.open[0]
		}
	}
	return nil
}

// closeAll ends all consumers and checks that they do.
func (w *World) closeAll(pause func(time.Duration)) {
	w.mu.Lock()
	list := w.consumers
	w.mu.Unlock()
	for _, c := range list {
		c.leave()
	}
	pause(w.plan.CloseTimeout + closeSlack)
	for _, c := range list {
		w.checkClosed(c)
	}
}

// finish ends the simulation.
func (w *World) finish() (Stats, *Failure) {
	w.mu.Lock()
	for n := range w.topic.Raise(1) {
		if err := w.topic.Partition(n).Check(); err != nil {
			w.fail("state", "", "partition %d: %v", n, err)
		}
	}
	w.stats.Virtual = time.Since(w.start)
	w.stats.Messages = len(w.messages)
	w.end()
	w.mu.Unlock()
	w.actors.Wait()
	return w.stats, w.failure
}

// end stops everything. The caller holds mu.
func (w *World) end() {
	if !w.ended {
		w.ended = true
		close(w.over)
	}
}

// fail notes what went wrong, if it is the first, and ends the simulation. The caller
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
		Trace: w.trace.tell(w.start, id, w.Events),
	}
	w.end()
}

func (w *World) failNow(rule, reason string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(rule, "", reason, args...)
}

// log remembers an event. The caller holds mu.
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

func (w *World) partitions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.topic.Raise(1)
}

// newLink returns the way of a process to a partition. The caller holds mu.
func (w *World) newLink(p *process, partition int) *link {
	l := &link{w: w, process: p, partition: partition, luck: map[string]*rand.Rand{}}
	if until := w.stalls[partition]; time.Now().Before(until) {
		l.suffer(until)
	}
	return l
}

// register makes a group known in all partitions and returns how many there are. The
// caller holds mu.
func (w *World) register(g *group) int {
	w.registerLocked(g)
	return w.topic.Raise(1)
}

func (w *World) registerLocked(g *group) {
	for n := range w.topic.Raise(1) {
		p := w.topic.Partition(n)
		p.Register(g.name)
		if g.registered {
			continue
		}
		for _, id := range p.Scheduled() {
			g.follow(w.messages[id], w.messages[id].due, time.Now())
		}
	}
	g.registered = true
}

// takenBack notes that a message was replaced or cancelled.
func (w *World) takenBack(id string) {
	m := w.messages[id]
	m.gone = true
	for _, t := range m.tracks {
		t.end()
	}
}
