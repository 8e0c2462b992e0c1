package whole

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/redisdelaytest"
)

// slack is how much longer than its context a call may take.
const slack = 100 * time.Millisecond

// world is a run.
type world struct {
	*ledger
	t       *testing.T
	seed    uint64
	redis   *redisdelaytest.Redis
	network *network

	over    chan struct{}  // closed when faults, publishing and churn end
	closing chan struct{}  // closed when everything ends
	actors  sync.WaitGroup // that end with over
	keepers sync.WaitGroup // that end with closing

	mu      sync.Mutex
	live    []*consumer // guarded by mu; the steady ones
	clients []*process  // guarded by mu
}

func newWorld(t *testing.T, seed uint64, plan *Plan) *world {
	r := redisdelaytest.New(t)
	dial := r.Options().Dialer
	w := &world{
		ledger: &ledger{plan: plan, start: time.Now(), entries: map[string]*entry{}, turns: map[string]*turn{}, failures: map[string]*broken{}},
		t:      t, seed: seed, redis: r, over: make(chan struct{}), closing: make(chan struct{}),
	}
	w.network = &network{trip: plan.Trip, trace: *wholeTrace, dial: func() (net.Conn, error) { return dial(t.Context(), "", "") }}
	return w
}

// process starts a process with a client of its own, which is closed at the end.
func (w *world) process(name string) *process {
	p := w.network.process(name, rngOf(w.seed, "network of "+name))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clients = append(w.clients, p)
	return p
}

// rest waits, and reports whether the world goes on.
func (w *world) rest(d time.Duration) bool { return sleeping(d, w.over) }

func sleeping(d time.Duration, end <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-end:
		return false
	}
}

// call makes a public call, which must end with its context, and must not fail unless something
// is wrong or the error is one of those that are allowed.
func (w *world) call(p *process, name string, limit time.Duration, do func(ctx context.Context) error, allowed ...error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	began := time.Now()
	err := do(ctx)
	took := time.Since(began)
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	if took > limit+slack {
		w.broke("context", "%s took %v, but its context or Close gave it %v (%v)", name, took, limit, err)
	}
	if err == nil || p.gone() || w.troubled(began, time.Now(), p.name) {
		return err
	}
	for _, a := range allowed {
		if errors.Is(err, a) {
			return err
		}
	}
	w.broke("call", "%s failed after %v while nothing was wrong: %v", name, took, err)
	return err
}

// run plays the plan.
func (w *world) run() {
	for group, number := range w.plan.Groups {
		for n := range number {
			w.keepers.Go(func() { w.keep(fmt.Sprintf("%s %d", group, n+1), group) })
		}
	}
	wait(time.Second)
	sent, bytes := w.network.counted()
	for n, p := range w.plan.Publishers {
		w.actors.Go(func() { w.publish(fmt.Sprintf("publisher %d", n+1), p) })
	}
	w.actors.Go(w.visitors)
	w.actors.Go(w.faults)
	w.actors.Go(w.operate)
	w.actors.Go(w.watchRecords)
	wait(w.plan.Duration)
	close(w.over)
	w.actors.Wait()
	w.settle()
	w.checkCost(sent, bytes)
	w.checkGroups()
	wait(12 * time.Minute) // what groups have left in other partitions is looked for every ten minutes
	w.checkIdle()
	w.checkDoctor()
	w.checkListed()
	close(w.closing)
	w.keepers.Wait()
	w.checkKeys()
	w.stats.Virtual = time.Since(w.start)
	w.stats.Requests, _ = w.network.counted()
	for _, p := range w.clients {
		_ = p.client.Close()
	}
}

// settle waits until everything is delivered. What was dead-lettered is requeued.
func (w *world) settle() {
	w.heal()
	o := w.operator("last operator", 10*w.patience())
	deadline := time.Now().Add(2 * time.Minute)
	for {
		requeued := o.requeue() // it cannot, while Redis has lost the list of topics
		wait(5 * time.Second)
		uuid, group := w.left(w.plan.Groups)
		if uuid == "" && requeued {
			return
		}
		if time.Now().After(deadline) {
			w.fail("lost", "%q was not delivered to %q two minutes after the last fault (dead messages requeued: %t)", uuid, group, requeued)
			return
		}
	}
}

// rng is the source of numbers of an actor.
func (w *world) rng(name string) *rand.Rand { return rngOf(w.seed, name) }

// inspector is a client beside all faults, for checks.
func (w *world) inspector() redis.UniversalClient { return w.redis.Client() }

// patience is how long a call may take that needs a few round trips.
func (w *world) patience() time.Duration { return time.Second + 12*w.plan.Trip }
