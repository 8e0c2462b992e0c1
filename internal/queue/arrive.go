package queue

import (
	"context"
	"strconv"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
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
	args := []any{int64(0), keep.Milliseconds(), p.Channel(), how}
	for _, m := range messages {
		var due any = ""
		if !m.DueAt.IsZero() {
			due = m.DueAt.UnixMilli()
		}
		args = append(args, m.ID, m.Move, due, m.Body)
	}
	var outcomes []Outcome
	err := p.InTime(ctx, func(until int64) (late time.Time, err error) {
		args[0] = until
		reply, err := p.Run(ctx, arriveScript, "", args)
		if err != nil {
			return time.Time{}, err
		}
		now, how := reply.Time(), reply.Text()
		if how == "late" {
			return now, reply.End()
		}
		if reply.Len() != len(messages) {
			reply.Fail("it has %d outcomes of %d arrivals", reply.Len(), len(messages))
		}
		outcomes = outcomes[:0]
		for reply.More() {
			outcomes = append(outcomes, Outcome(reply.Text()))
		}
		return time.Time{}, reply.End()
	})
	return outcomes, err
}

// Over counts the arrivals that need not be remembered any more. The next ones drop them.
func (p *Partition) Over(ctx context.Context) (int, error) {
	now, err := p.Now(ctx)
	if err != nil {
		return 0, err
	}
	return script.Promptly(ctx, p.Client(), func(ctx context.Context) (int, error) {
		key := p.Key(script.Arrived, "")
		node, err := p.Client().Master(ctx, key)
		if err != nil {
			return 0, err
		}
		n, err := node.ZCount(ctx, key, "-inf", strconv.FormatInt(now, 10)).Result()
		if err != nil {
			call := p.Call(arriveScript, p.Keys(arriveScript, ""), nil)
			return 0, p.Client().Failed(ctx, call, err)
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
