package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// keepArrived is for how long a partition remembers what has arrived: as long, to repeat a copy
// or an import stores nothing twice.
const keepArrived = 24 * time.Hour

// errLate says that Redis's clock keeps running ahead of the time limits of calls.
var errLate = errors.New("no answer in time, by Redis's clock")

// Arrival is a message that comes from another topic or server.
type Arrival struct {
	ID    string // which it keeps; it ends with the key
	DueAt time.Time
	Body  []byte
}

// Outcome is what Arrive has done with a message.
type Outcome string

// The outcomes.
const (
	OutcomeStored Outcome = "stored"
	OutcomeKnown  Outcome = "known" // it is there, or has arrived before: see Arrive
	OutcomeTaken  Outcome = "taken" // its key is in use
)

// Arrive stores messages under their ids, each once, and remembers them. A message that is there is
// not stored again; nor is one that is done, if it came by the same move or, if move is "", as a
// copy. Arrive may be repeated. A zero DueAt is now. It takes up to MaxMessages, and should be given a MiB of bodies at most.
func (p *Partition) Arrive(ctx context.Context, move string, messages []Arrival) ([]Outcome, error) {
	args := []any{int64(0), keepArrived.Milliseconds(), p.channel(), move}
	for _, m := range messages {
		var due any = ""
		if !m.DueAt.IsZero() {
			due = m.DueAt.UnixMilli()
		}
		args = append(args, m.ID, due, m.Body)
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
		_, err = p.Arrive(ctx, "", nil)
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
