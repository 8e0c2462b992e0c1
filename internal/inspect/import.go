package inspect

import (
	"context"
	"strconv"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// keepImported is how long a partition remembers imported messages, so that a repeated import stores no message twice.
const keepImported = 24 * time.Hour

// ImportedMessage is a message from another topic or server.
type ImportedMessage struct {
	ID    string // the id in the other topic; it ends with the key
	DueAt time.Time
	Body  []byte
}

// Outcome is the result of Import for a message.
type Outcome string

// The outcomes.
const (
	OutcomeStored Outcome = "stored"
	OutcomeKnown  Outcome = "known" // it is stored, or was stored by an earlier call: see Import
	OutcomeTaken  Outcome = "taken" // its key is in use
)

// Import stores up to MaxMessages messages under their ids, and remembers them. It may be repeated: it stores no message that
// is in the topic, or that an earlier call stored. A zero DueAt means now. The bodies should not exceed a MiB.
func Import(ctx context.Context, p *queue.Partition, messages []ImportedMessage) ([]Outcome, error) {
	args := []any{int64(0), keepImported.Milliseconds(), p.Channel()}
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
		reply, err := p.Run(ctx, importScript, "", args)
		if err != nil {
			return time.Time{}, err
		}
		now, how := reply.Time(), reply.Text()
		if how == "late" {
			return now, reply.End()
		}
		if reply.Len() != len(messages) {
			reply.Fail("it has %d outcomes of %d messages", reply.Len(), len(messages))
		}
		outcomes = outcomes[:0]
		for reply.More() {
			outcomes = append(outcomes, Outcome(reply.Text()))
		}
		return time.Time{}, reply.End()
	})
	return outcomes, err
}

// FindImported returns the partition that knows each of up to MaxMessages messages, as Import decides it, among the first
// partitions. Unknown messages are missing.
func FindImported(ctx context.Context, t *queue.Topic, partitions int, ids []string) (map[string]int, error) {
	calls := make([]script.Call, partitions)
	for n := range calls {
		p := t.Partition(n)
		calls[n] = p.Call(findImportedScript, p.Keys(findImportedScript, ""), script.Strings(ids))
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

// Outdated counts the records of imported messages that are no longer needed. Later calls of Import delete them.
func Outdated(ctx context.Context, p *queue.Partition) (int, error) {
	now, err := p.Now(ctx)
	if err != nil {
		return 0, err
	}
	return script.RunAbandonable(ctx, p.Client(), func(ctx context.Context) (int, error) {
		key := p.Key(script.Imported, "")
		node, err := p.Client().Master(ctx, key)
		if err != nil {
			return 0, err
		}
		n, err := node.ZCount(ctx, key, "-inf", strconv.FormatInt(now, 10)).Result()
		if err != nil {
			call := p.Call(importScript, p.Keys(importScript, ""), nil)
			return 0, p.Client().Failed(ctx, call, err)
		}
		return int(n), nil
	})
}

// DropOutdated deletes a number of outdated records, in bounded steps.
func DropOutdated(ctx context.Context, p *queue.Partition, over int) (err error) {
	for ; err == nil && over > 0; over -= queue.MaxMessages { // a call deletes up to MaxMessages
		_, err = Import(ctx, p, nil)
	}
	return err
}
