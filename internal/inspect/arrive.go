package inspect

import (
	"context"
	"strconv"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// keepArrived is for how long a partition remembers what has arrived. For so long, an import
// may be repeated and stores nothing twice.
const keepArrived = 24 * time.Hour

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

// Arrive stores messages under their ids, each once, and remembers them. A message is not stored again if it is there, or
// was stored by Arrive and is done. Arrive may be repeated. A zero DueAt is now. It takes up to MaxMessages, and should be
// given a MiB of bodies at most.
func Arrive(ctx context.Context, p *queue.Partition, messages []Arrival) ([]Outcome, error) {
	args := []any{int64(0), keepArrived.Milliseconds(), p.Channel()}
	for _, m := range messages {
		var due any = ""
		if !m.DueAt.IsZero() {
			due = m.DueAt.UnixMilli()
		}
		args = append(args, m.ID, due, m.Body)
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

// Known returns which of the first partitions has each message, as Arrive sees it. Messages that none has are missing.
// It takes up to MaxMessages.
func Known(ctx context.Context, t *queue.Topic, partitions int, ids []string) (map[string]int, error) {
	calls := make([]script.Call, partitions)
	for n := range calls {
		p := t.Partition(n)
		calls[n] = p.Call(knownScript, p.Keys(knownScript, ""), script.Strings(ids))
	}
	at := map[string]int{}
	for n, answer := range t.Store().RunMany(ctx, calls) {
		if answer.Err != nil {
			return nil, answer.Err
		}
		for _, id := range answer.Reply.Rest() {
			at[id] = n
		}
		if err := answer.Reply.End(); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// Outdated counts the arrivals that need not be remembered any more. The next ones drop them.
func Outdated(ctx context.Context, p *queue.Partition) (int, error) {
	now, err := p.Now(ctx)
	if err != nil {
		return 0, err
	}
	return script.Promptly(ctx, p.Client(), func(ctx context.Context) (int, error) {
		key := p.Key(script.Imported, "")
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

// DropOutdated drops so many of them, in bounded steps.
func DropOutdated(ctx context.Context, p *queue.Partition, over int) (err error) {
	for ; err == nil && over > 0; over -= queue.MaxMessages { // which is how many a call drops
		_, err = Arrive(ctx, p, nil)
	}
	return err
}
