package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// forgetMessages is how many messages of a retired group one call frees.
const forgetMessages = 200

// lateCopies is how long copies of calls may still arrive after the faults have ended.
const lateCopies = 15 * time.Second

// operator pauses, limits and retires groups, and undoes this in the end. It repeats a failed call,
// as a human operator would. Retirements are forced.
type operator struct {
	*process
	w     *World
	plan  OperatorPlan
	rng   *rand.Rand // owned by run
	calls sync.WaitGroup

	links map[int]*link // guarded by World.mu

	// owned by run
	paused  map[string]bool
	limited map[string]bool
	retired map[string]bool
}

func newOperator(w *World) *operator {
	return &operator{
		process: newProcess("operator", w.over), w: w, plan: w.plan.Operator, rng: rng(w.seed, "operator"),
		links: map[int]*link{}, paused: map[string]bool{}, limited: map[string]bool{}, retired: map[string]bool{},
	}
}

// run changes the settings of groups from time to time, and undoes the changes when the faults have
// ended.
func (o *operator) run() {
	if o.plan.Every == 0 {
		return
	}
	for !o.w.isOver() {
		o.pause(between(o.rng, o.plan.Every/10, 2*o.plan.Every))
		if o.w.isQuiet() {
			break
		}
		g := o.w.groups[o.rng.IntN(len(o.w.groups))]
		switch draw := o.rng.Float64() * (o.plan.Pauses + o.plan.Limits + o.plan.Retirements); {
		case draw < o.plan.Pauses:
			o.pauseOrResume(g)
		case draw < o.plan.Pauses+o.plan.Limits:
			o.limitOrNot(g)
		default:
			o.retireOrRestore(g)
		}
	}
	_ = o.rest(context.Background(), lateCopies, nil) // either result is fine
	o.relent()
}

func (o *operator) pause(d time.Duration) {
	_ = o.rest(context.Background(), d, o.w.quieted) // the loop checks why it ended
}

func (o *operator) pauseOrResume(g *group) {
	name := g.name
	if chance(o.rng, 0.3) {
		name = ""
	}
	if o.paused[name] && chance(o.rng, 0.7) {
		o.resume(name)
		return
	}
	lasts := time.Duration(0)
	if chance(o.rng, 0.5) {
		lasts = between(o.rng, 20*time.Millisecond, pick(o.rng, time.Second, 10*time.Second))
	}
	o.paused[name] = true
	o.everywhere("pause", func(n int, now int64) { o.w.pause(n, now, name, lasts) })
}

func (o *operator) resume(name string) {
	o.paused[name] = false
	o.everywhere("resume", func(n int, now int64) { o.w.resume(n, now, name) })
}

func (o *operator) limitOrNot(g *group) {
	l := store.Limits{}
	if !o.limited[g.name] || chance(o.rng, 0.7) {
		l = o.anyLimits()
	}
	o.limit(g.name, l)
}

// anyLimits draws limits that are high enough for the largest possible number of partitions.
func (o *operator) anyLimits() store.Limits {
	minimum := o.w.plan.Partitions + o.w.plan.Raise
	l := store.Limits{}
	which := o.rng.IntN(4)
	if which != 0 {
		l.MaxInFlight = max(minimum, pick(o.rng, 1, 1, 2, 3, 5, 20, 100))
	}
	if which < 2 {
		per := pick(o.rng, 100*time.Millisecond, time.Second, 3*time.Second)
		l.Messages, l.Per = pick(o.rng, 1, 3, 10, 50, 200), per.Microseconds()
		l.Burst = max(minimum, pick(o.rng, 1, 1, 3, 20, 100))
	}
	return l
}

func (o *operator) limit(name string, l store.Limits) {
	o.limited[name] = l != store.Limits{}
	for done := 0; !o.w.isOver(); { // partitions that are added meanwhile get a share, too
		number := o.partitions()
		if number == done {
			return
		}
		for n := range number {
			o.call(n, "limit", func(now int64) bool {
				o.w.limit(n, now, name, l, number)
				return true
			})
		}
		done = number
	}
}

func (o *operator) retireOrRestore(g *group) {
	if o.retired[g.name] && chance(o.rng, 0.8) {
		o.restore(g)
		return
	}
	o.retired[g.name] = true
	o.everywhere("retire", func(n int, _ int64) { o.w.retire(n, g) })
	o.limited[g.name] = false
	interrupted := chance(o.rng, 0.2)
	for n := range o.partitions() {
		if interrupted && chance(o.rng, 0.5) {
			return
		}
		o.free(n, g)
	}
	o.paused[g.name] = false
}

// free frees all messages of a retired group in a partition.
func (o *operator) free(partition int, g *group) {
	for o.call(partition, "forget", func(int64) bool { return o.w.free(partition, g) }) {
	}
}

// restore also frees what an interrupted retirement has left.
func (o *operator) restore(g *group) {
	o.retired[g.name] = false
	for n := 0; n < o.partitions(); n++ {
		for !o.call(n, "restore", func(int64) bool { return o.w.restore(n, g) }) && !o.w.isOver() {
			o.free(n, g)
		}
	}
}

// relent undoes all changes.
func (o *operator) relent() {
	o.resume("")
	for _, g := range o.w.groups {
		o.resume(g.name)
		o.limit(g.name, store.Limits{})
		o.restore(g)
	}
}

// everywhere makes a call at the first partition, and then at all others at once. A
// partition that is added meanwhile has adopted the settings of the first one.
func (o *operator) everywhere(kind string, do func(n int, now int64)) {
	at := func(n int) {
		o.call(n, kind, func(now int64) bool {
			do(n, now)
			return true
		})
	}
	at(0)
	for n := 1; n < o.partitions(); n++ {
		o.calls.Go(func() { at(n) })
	}
	o.calls.Wait()
}

func (o *operator) partitions() int {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	return o.w.topic.RaisePartitions(1)
}

// call makes a call until it is answered, and returns the answer; false when the simulation
// is over.
func (o *operator) call(partition int, kind string, do func(now int64) bool) bool {
	for !o.w.isOver() {
		answer, err := call(context.Background(), o.link(partition), kind, do)
		if err == nil {
			return answer
		}
		if o.rest(context.Background(), 100*time.Millisecond, nil) != nil {
			return false
		}
	}
	return false
}

func (o *operator) link(partition int) *link {
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	if o.links[partition] == nil {
		o.links[partition] = o.w.newLink(o.process, partition)
	}
	return o.links[partition]
}
