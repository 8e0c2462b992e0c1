package queue

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// DeadLetter is a message that a group could not handle.
type DeadLetter struct {
	ID       string
	BuriedAt time.Time
	Reason   string
	Body     []byte // nil if it is missing
	Metadata []byte // from the last Nack that had any; nil if none had
}

// DeadLetters returns up to limit of the group's dead letters, the oldest first. It
// reads few at a time if they are large, and skips those that are requeued or
// discarded meanwhile.
func (g *Group) DeadLetters(ctx context.Context, limit int) ([]DeadLetter, error) {
	var letters []DeadLetter
	for ids := []string(nil); ; {
		reply, err := g.run(ctx, lettersScript, append([]any{limit, maxReplyBytes}, anys(ids)...))
		if err != nil {
			return nil, err
		}
		some, left, err := parseLetters(reply)
		if err != nil {
			return nil, err
		}
		letters = append(letters, some...)
		if len(left) == 0 {
			return letters, nil
		}
		ids = left
	}
}

func parseLetters(reply []any) (letters []DeadLetter, left []string, err error) {
	const fields = 5
	if len(reply) != 2 {
		return nil, nil, fmt.Errorf("%w: dead letters with %d values", errReply, len(reply))
	}
	list, ok := reply[0].([]any)
	ids, ok2 := reply[1].([]any)
	if !ok || !ok2 || len(list)%fields != 0 {
		return nil, nil, fmt.Errorf("%w: dead letters with %d values and %T", errReply, len(list), reply[1])
	}
	for ; len(list) > 0; list = list[fields:] {
		id, ok := list[0].(string)
		score, ok2 := list[1].(string)
		ms, err := strconv.ParseFloat(score, 64)
		if !ok || !ok2 || err != nil {
			return nil, nil, fmt.Errorf("%w: dead letter %v buried at %v", errReply, list[0], list[1])
		}
		letter := DeadLetter{ID: id, BuriedAt: time.UnixMilli(int64(ms))}
		letter.Reason, _ = list[2].(string)
		if body, ok := list[3].(string); ok {
			letter.Body = []byte(body)
		}
		if metadata, ok := list[4].(string); ok {
			letter.Metadata = []byte(metadata)
		}
		letters = append(letters, letter)
	}
	left, err = stringsOf(ids)
	return letters, left, err
}

// Requeue makes dead letters due again, as if they had never been delivered, if they were
// buried no later than a time by Redis's clock, in ms. It returns the ids of the others.
func (g *Group) Requeue(ctx context.Context, latest int64, ids []string) ([]string, error) {
	return g.settle(ctx, requeueScript, append([]any{g.name, g.partition.channel(), latest}, anys(ids)...))
}

// Discard removes dead letters for good, if they were buried no later than a time by
// Redis's clock, in ms. It returns the ids of the others.
func (g *Group) Discard(ctx context.Context, latest int64, ids []string) ([]string, error) {
	lists, err := g.runUntilDone(ctx, discardScript, 2, []any{g.name, maxFreedBytes, latest}, ids)
	return lists[0], err
}
