package queue

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// Arrival is a message that comes from another topic or server.
type Arrival struct {
	ID    string // which it keeps; it ends with the key
	Move  string // Move.Name, if it is moved
	DueAt time.Time
	Body  []byte
}

// Outcome is what Arrive has done with a message.
type Outcome string

// The outcomes.
const (
	OutcomeStored Outcome = "stored"
	OutcomeAbsent Outcome = "absent" // of Arrived: it is not there, and is not remembered
	OutcomeKnown  Outcome = "known"  // it is there, or has arrived by this move; or by any, if it is a copy
	OutcomePast   Outcome = "past"   // it has arrived by another move or as a copy, and is not there any more
	OutcomeTaken  Outcome = "taken"  // its key is in use
	OutcomeMoving Outcome = "moving" // it is being moved from there
)

// Arrive stores messages under their ids, each once, and remembers them: for as long as they
// are kept, they are not stored again even if they are done by then. It may be repeated. A
// zero DueAt is now. It takes up to MaxMessages, and should be given a MiB of bodies at most.
func (p *Partition) Arrive(ctx context.Context, keep time.Duration, messages []Arrival) ([]Outcome, error) {
	return p.arrive(ctx, "store", keep, messages)
}

// Arrived says what Arrive would do, and changes nothing.
func (p *Partition) Arrived(ctx context.Context, messages []Arrival) ([]Outcome, error) {
	return p.arrive(ctx, "look", 0, messages)
}

func (p *Partition) arrive(ctx context.Context, how string, keep time.Duration, messages []Arrival) ([]Outcome, error) {
	args := []any{int64(0), keep.Milliseconds(), p.channel(), how}
	for _, m := range messages {
		var due any = ""
		if !m.DueAt.IsZero() {
			due = m.DueAt.UnixMilli()
		}
		args = append(args, m.ID, m.Move, due, m.Body)
	}
	var outcomes []Outcome
	err := p.inTime(ctx, func(until int64) (late time.Time, err error) {
		args[0] = until
		reply, err := p.run(ctx, arriveScript, arriveScript.keys(p.names, "", nil), args)
		if err != nil {
			return time.Time{}, err
		}
		words, err := stringsOf(reply)
		switch {
		case err != nil:
			return time.Time{}, err
		case len(words) == 2 && words[1] == "late":
			return timeOf(words[0])
		case len(words) != 2+len(messages):
			return time.Time{}, fmt.Errorf("%w: %d outcomes of %d arrivals", errReply, len(words)-2, len(messages))
		}
		outcomes = outcomes[:0]
		for _, word := range words[2:] {
			outcomes = append(outcomes, Outcome(word))
		}
		return time.Time{}, nil
	})
	return outcomes, err
}

// Over counts the arrivals that need not be remembered any more. The next ones drop them.
func (p *Partition) Over(ctx context.Context) (int, error) {
	now, err := p.Now(ctx)
	if err != nil {
		return 0, err
	}
	return promptly(ctx, p.store, func(ctx context.Context) (int, error) {
		key := p.names.key(arrived)
		node, err := p.store.master(ctx, key)
		if err != nil {
			return 0, err
		}
		n, err := node.ZCount(ctx, key, "-inf", strconv.FormatInt(now, 10)).Result()
		if err != nil {
			call := p.call(arriveScript, arriveScript.keys(p.names, "", nil), nil)
			return 0, p.store.failed(ctx, call, err)
		}
		return int(n), nil
	})
}

// Forget drops as many, in bounded steps.
func (p *Partition) Forget(ctx context.Context) error {
	over, err := p.Over(ctx)
	for ; err == nil && over > 0; over -= MaxMessages { // which is how many a call drops
		_, err = p.Arrive(ctx, 0, nil)
	}
	return err
}

// clock is what a partition knows of Redis's clock, for the time limits of calls. No host's
// clock is compared with Redis's: a call that comes too late is told the time.
type clock struct {
	mu    sync.Mutex
	redis time.Time // guarded by mu
	at    time.Time // guarded by mu; when the host learned it
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.UnixMilli(0)
	}
	return c.redis.Add(time.Since(c.at))
}

func (c *clock) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.redis, c.at = now, time.Now()
}

// inTime makes a call that counts only until a time by Redis's clock, in ms: a copy that comes
// later, when nobody waits for it, must change nothing. If the call is late, it returns
// Redis's time, and is made again.
func (p *Partition) inTime(ctx context.Context, call func(until int64) (late time.Time, err error)) error {
	for range 4 {
		late, err := call(p.clock.now().Add(leftOf(ctx)).UnixMilli())
		if err != nil || late.IsZero() {
			return err
		}
		p.clock.set(late)
	}
	return errLate
}
