package queue

import (
	"context"
	"fmt"
	"time"
)

// Seen is a message with the score that a caller has seen it with. An act leaves a message
// alone that has another one by now.
type Seen struct{ ID, Score string }

// Now is the time in ms by the clock of the partition's master, as the scripts have it.
func (p *Partition) Now(ctx context.Context) (int64, error) {
	return p.store.nowAt(ctx, p.names.key(messages))
}

// nowAt is the time in ms by the clock of the master that has a key.
func (s *Store) nowAt(ctx context.Context, key string) (int64, error) {
	return promptly(ctx, s, func(ctx context.Context) (int64, error) {
		node, err := s.master(ctx, key)
		if err != nil {
			return 0, err
		}
		now, err := node.Time(ctx).Result()
		if err != nil {
			if Transient(err) {
				s.look(ctx)
			}
			return 0, err
		}
		return now.UnixMilli(), nil
	})
}

// Withdraw takes back messages that wait in a place: up to MaxMessages. InScheduled, no group
// has been given them; InQueue, they end for this group alone. It returns the ids of those that
// do not wait there for the time that was seen.
func (g *Group) Withdraw(ctx context.Context, place Place, some []Seen) (left []string, err error) {
	return g.withdraw(ctx, place, "", some)
}

// TakeOut does so with messages that have arrived elsewhere by a move. The place may be InDead.
// looked is when they were seen, by the partition's clock: those that another move has brought, or
// found here, since then stay. That move may be the other way, and is about to take them out there.
func (g *Group) TakeOut(ctx context.Context, place Place, looked time.Time, some []Seen) (left []string, err error) {
	return g.withdraw(ctx, place, looked.Add(keepArrived).UnixMilli(), some)
}

func (g *Group) withdraw(ctx context.Context, place Place, since any, some []Seen) (left []string, err error) {
	for len(some) > 0 {
		reply, err := g.run(ctx, withdrawScript, append([]any{string(place), g.name, maxFreedBytes, since}, pairs(some)...))
		if err != nil {
			return left, err
		}
		lists, err := listsOf(reply, 2)
		if err != nil {
			return left, err
		}
		if len(lists[1]) >= len(some) {
			return left, fmt.Errorf("%w: all %d ids are left", errReply, len(some))
		}
		left, some = append(left, lists[0]...), only(some, lists[1])
	}
	return left, nil
}

// pairs are messages as the scripts want them.
func pairs(some []Seen) []any {
	args := make([]any, 0, 2*len(some))
	for _, s := range some {
		args = append(args, s.ID, s.Score)
	}
	return args
}

// only returns those of the messages that have these ids.
func only(some []Seen, ids []string) []Seen {
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	var list []Seen
	for _, s := range some {
		if wanted[s.ID] {
			list = append(list, s)
		}
	}
	return list
}

// Retime makes messages that wait in a place, InScheduled or InQueue, due at a time by
// Redis's clock, in ms: up to MaxMessages. It returns the ids of those that do not wait there
// for the time that was seen.
func (g *Group) Retime(ctx context.Context, place Place, due int64, some []Seen) (left []string, err error) {
	args := append([]any{string(place), due, g.partition.channel()}, pairs(some)...)
	return g.settle(ctx, retimeScript, args)
}

// BuryAny makes messages dead letters, whether they wait for the group or are in delivery:
// up to MaxMessages. It returns the ids of those that are neither, unless they are dead letters
// for this reason. A late copy of the call buries nothing that was requeued since.
func (g *Group) BuryAny(ctx context.Context, reason string, ids []string) (left []string, err error) {
	now, err := g.partition.Now(ctx)
	if err != nil {
		return nil, err
	}
	args := []any{g.name, g.partition.channel(), now + leftOf(ctx).Milliseconds()}
	for _, id := range ids {
		args = append(args, id, "", reason)
	}
	return g.settle(ctx, buryScript, args)
}
