package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// clientTimeout is how long a client waits for a reply.
	clientTimeout = 3 * time.Second

	// recovery is how long the library may take to retry after a fault: its longest pause, and the
	// time for several loops that fail together.
	recovery = 5 * time.Second
)

var (
	errReset   = errors.New("sim: connection reset by peer")
	errTimeout = errors.New("sim: i/o timeout")
)

// refusal is an error that the server returns without running the call.
type refusal string

func (e refusal) Error() string { return string(e) }

// RedisError implements redis.Error.
func (refusal) RedisError() {}

// link is a process's connection to a partition.
type link struct {
	w         *World
	process   *process
	consumer  *consumer // nil for a publisher
	partition int

	// guarded by World.mu
	rng            map[string]*rand.Rand // by kind of call
	disturbedUntil time.Time             // faults may affect the library until then
	opened         time.Time             // when the first claim, or the first after refused, was answered
	number         int64                 // of the last claim
	asked          time.Time             // when the last answered claim was sent
	refused        time.Time             // when a claim was last answered that the group is retired
	found          time.Time             // when a claim last got messages
	listener       *listener
	misled         time.Time // when a notification was last lost or false
	informed       bool      // a claim was answered since then
	informedAt     time.Time
}

// fate is what happens to a call.
type fate struct {
	out, back   time.Duration
	lostRequest bool
	lostReply   bool
	sent        bool          // even if the caller stops waiting meanwhile
	hang        time.Duration // until a loss is noticed
	repeatAfter time.Duration // when it is executed again; 0: never
	refused     error         // instead of being executed
	hidden      error         // the answer to a repetition by the client itself
}

// draw chooses the fate of a call.
func (l *link) draw(kind string) fate {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	r := l.rng[kind]
	if r == nil {
		r = rng(l.w.seed, l.process.name+"/"+kind+"/"+string(rune('a'+l.partition)))
		l.rng[kind] = r
	}
	f, now := l.w.plan.Faults, time.Now()
	result := fate{out: between(r, 0, f.Latency), back: between(r, 0, f.Latency), sent: chance(r, 0.5)}
	bad := 0.0
	if f.any() && !l.w.quiet {
		bad = f.Background
		if now.Before(l.w.storms[l.process]) {
			bad = 0.4
		}
	}
	if now.Before(l.w.refusals[l.process]) && !l.w.quiet && (kind != "push" || chance(r, 0.5)) {
		result.refused = refusal("NOPERM this user has no permissions")
	}
	if chance(r, bad) {
		result.hang = between(r, 0, clientTimeout)
		switch r.IntN(4) {
		case 0:
			result.lostRequest = true
		case 1:
			result.lostReply = true
			if chance(r, 0.3) { // the client itself repeats it, and sees only the second answer
				result.hidden = refusal("NOAUTH Authentication required")
			}
		case 2:
			result.repeatAfter = between(r, time.Millisecond, 5*time.Second)
		default:
			result.out += between(r, 0, time.Second)
			result.back += between(r, 0, time.Second)
		}
		l.disturb(now.Add(result.out + result.back + result.hang))
	}
	if result.refused != nil {
		l.disturb(now.Add(result.out + result.back))
	}
	return result
}

// disturb records that a fault lasts until a time. The caller holds World.mu.
func (l *link) disturb(until time.Time) {
	l.disturbedUntil = latest(l.disturbedUntil, until.Add(recovery))
}

// call sends a call to a partition. do executes it at the store, perhaps twice.
func call[R any](ctx context.Context, l *link, kind string, do func(now int64) R) (R, error) {
	var none R
	if err := l.process.alive(); err != nil {
		return none, err
	}
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	l.w.count(l, kind)
	f := l.draw(kind)
	if err := l.process.rest(ctx, f.out, nil); err != nil {
		if f.sent && !f.lostRequest {
			execute(l.w, do)
		}
		return none, err
	}
	if err := l.arrive(ctx, func() { execute(l.w, do) }); err != nil {
		return none, l.failed(kind, err)
	}
	if f.lostRequest || f.refused != nil {
		err := f.refused
		if err == nil {
			err = errReset
		}
		return none, l.lost(ctx, kind, f, err)
	}
	result := execute(l.w, do)
	if f.repeatAfter > 0 {
		time.AfterFunc(f.repeatAfter, func() { execute(l.w, do) })
	}
	if f.lostReply {
		err := f.hidden
		if err == nil {
			err = errTimeout
		}
		return none, l.lost(ctx, kind, f, err)
	}
	if err := l.process.rest(ctx, f.back, nil); err != nil {
		return none, err
	}
	return result, nil
}

// lost ends a call without an answer, or with a refusal.
func (l *link) lost(ctx context.Context, kind string, f fate, err error) error {
	if f.refused != nil {
		f.hang = f.back
	}
	if early := l.process.rest(ctx, f.hang, nil); early != nil {
		return early
	}
	return l.failed(kind, err)
}

func (l *link) failed(kind string, err error) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.disturb(time.Now())
	l.w.log(l.process.name, "%s at %d fails: %v", []any{kind, l.partition, err})
	return err
}

// arrive waits while the partition hangs. If a call times out, it is still executed when the
// partition continues.
func (l *link) arrive(ctx context.Context, late func()) error {
	l.w.mu.Lock()
	hangs := time.Until(l.w.stalls[l.partition])
	l.w.mu.Unlock()
	if hangs <= 0 {
		return nil
	}
	if hangs <= clientTimeout {
		return l.process.rest(ctx, hangs, nil)
	}
	time.AfterFunc(hangs, late)
	if err := l.process.rest(ctx, clientTimeout, nil); err != nil {
		return err
	}
	return errTimeout
}

// execute runs do at the store.
func execute[R any](w *World, do func(now int64) R) R {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		var none R
		return none
	}
	return do(time.Now().UnixMicro())
}

func latest(times ...time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
