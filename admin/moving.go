package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// moving is the verb of Move.
const moving = "move"

// moving moves messages to the other topic.
func (t *transfer) moving() act {
	return act{
		verb: moving, in: []Set{Scheduled, Waiting, Dead}, most: maxNamed, mark: began,
		step: func(ctx context.Context, s step, latest int64) ([]skipped, int, error) {
			later := dropped(&s, func(e queue.PageEntry) bool { return s.place == queue.InDead && e.Score > latest })
			left, err := t.moveFrom(ctx, s.partition, s.group, s.place, scored(s.entries))
			return left, later, err
		},
		ids: func(ctx context.Context, p places, ids []string, _ int64) ([]skipped, error) {
			return together(ids, func(id string) error { return t.moveOne(ctx, p, id, "") })
		},
		key: func(ctx context.Context, p places, key string, _ int64) error { return t.moveOne(ctx, p, "", key) },
	}
}

// moveFrom moves messages from one place, in batches for one partition each. It returns those
// that have not arrived.
func (t *transfer) moveFrom(
	ctx context.Context, from *queue.Partition, g *queue.Group, place queue.Place, seen []queue.Seen,
) (left []skipped, err error) {
	for number, list := range spread(seen, func(s queue.Seen) int { return t.target(s.ID, from) }) {
		for some := range slices.Chunk(list, moveSize) {
			d := queue.Departure{Batch: queue.NewBatch(), To: t.to, Partition: number, Place: place, Messages: some}
			ids, err := g.Depart(ctx, d)
			if err != nil {
				return left, err
			}
			for _, s := range some {
				if !slices.Contains(ids, s.ID) {
					left = append(left, skipped{s.ID, notThere(place)})
				}
			}
			more, err := t.admin.carry(ctx, t.from, g, d.Batch, ids)
			left = append(left, more...)
			if err != nil {
				return left, err
			}
		}
	}
	return left, nil
}

// notThere is why a message does not leave a place.
func notThere(place queue.Place) error {
	if place == queue.InDead {
		return ErrNotDead
	}
	return ErrNotWaiting
}

// moveOne moves a message that is found by its id or key, from wherever it waits or is dead.
func (t *transfer) moveOne(ctx context.Context, p places, id, key string) error {
	found, err := p.topic.Look(ctx, id, key)
	switch {
	case errors.Is(err, queue.ErrNoMessage):
		return ErrMessageNotFound
	case err != nil:
		return err
	}
	from, why := p.topic.Partition(found.Partition), ErrNotWaiting
	move := func(group string, place queue.Place) error {
		left, err := t.moveFrom(ctx, from, from.Group(group), place, []queue.Seen{{ID: found.ID}})
		switch {
		case err != nil:
			return err
		case len(left) > 0:
			why = left[0].why
		default:
			why = nil
		}
		return nil
	}
	if found.Scheduled {
		err = move("", queue.InScheduled)
	}
	for _, g := range found.Groups {
		place, is := placeOfState[redisdelay.State(g.State)]
		if err == nil && is && slices.Contains(p.groups, g.Group) {
			err = move(g.Group, place)
		}
	}
	if err != nil {
		return err
	}
	return why
}

var placeOfState = map[redisdelay.State]queue.Place{
	redisdelay.StateWaiting: queue.InQueue, redisdelay.StateRetrying: queue.InQueue, redisdelay.StateDead: queue.InDead,
}

// carry goes on with messages that a batch has taken out of a group's place: it stores them in
// the other topic and ends their move. It may be repeated. It returns those that have not
// arrived.
func (a *Admin) carry(ctx context.Context, from string, g *queue.Group, batch string, ids []string) ([]skipped, error) {
	var left []skipped
	for len(ids) > 0 {
		moves, rest, err := g.Carry(ctx, batch, ids)
		if err != nil {
			return left, err
		}
		for _, some := range toOnePartition(moves) {
			more, err := a.land(ctx, from, g, some)
			left = append(left, more...)
			if err != nil {
				return left, err
			}
		}
		ids = rest
	}
	return left, nil
}

// toOnePartition groups moves by where they go, and by how old they are: those of a batch that
// was taken over may differ.
func toOnePartition(moves []queue.Move) [][]queue.Move {
	type where struct {
		to        string
		partition int
	}
	groups := map[where][]queue.Move{}
	for _, m := range moves {
		at := where{m.To, m.Partition}
		groups[at] = append(groups[at], m)
	}
	var list [][]queue.Move
	for _, some := range groups {
		list = append(list, some)
	}
	return list
}

// land stores moved messages in a partition of the other topic and ends their moves. Those
// that are not moving any more, since a torn append-only file brought them back, stay.
func (a *Admin) land(ctx context.Context, from string, g *queue.Group, moves []queue.Move) ([]skipped, error) {
	var left []skipped
	var endings []queue.Ending
	var arrivals []queue.Arrival
	t := a.transferTo(from, moves[0].To)
	for _, m := range moves {
		switch {
		case m.Here:
			left, endings = append(left, skipped{m.ID, ErrNotWaiting}), append(endings, queue.Ending{ID: m.ID})
		case m.Body == nil:
			left, endings = append(left, skipped{m.ID, errNoBody}), append(endings, queue.Ending{ID: m.ID})
		default:
			arrival := t.arrival(m.ID, m.Place, m.Score, m.Body, m.Metadata)
			arrival.Move = m.Name
			arrivals = append(arrivals, arrival)
		}
	}
	var outcomes []queue.Outcome
	if len(arrivals) > 0 {
		var err error
		outcomes, err = t.topic.Partition(moves[0].Partition).Arrive(ctx, queue.KeepMoved, arrivals)
		if err != nil {
			return left, err
		}
	}
	for i, outcome := range outcomes {
		arrived := outcome == queue.OutcomeStored || outcome == queue.OutcomeKnown
		if !arrived {
			left = append(left, skipped{arrivals[i].ID, refusal(outcome)})
		}
		endings = append(endings, queue.Ending{ID: arrivals[i].ID, Arrived: arrived})
	}
	return left, g.EndMove(ctx, moves[0].Batch, endings)
}

// ResumeMoves finishes what interrupted Moves from a topic have left. It leaves alone what a
// running Move has taken out in the last minute. What was interrupted six days ago or more is
// only looked for: if it is not found in the other topic, it may have been delivered there,
// and is skipped (ErrMoveTooOld).
func (a *Admin) ResumeMoves(ctx context.Context, topic string, progress func(Progress)) (Progress, error) {
	from, err := a.open(ctx, topic)
	if err != nil {
		return Progress{}, leave(err, "resume moves from %q", topic)
	}
	done, err := a.resume(ctx, from, progress)
	return done, leave(err, "resume moves from %q", topic)
}

// resume goes on with the moves in all partitions of a topic.
func (a *Admin) resume(ctx context.Context, from topic, tell func(Progress)) (Progress, error) {
	p := &performance{tell: tell}
	for n := range from.partitions {
		for cursor := "0"; ; {
			batch, done, next := queue.NewBatch(), 0, ""
			left, _, err := inStep(ctx, func(ctx context.Context) (left []skipped, _ int, err error) {
				done, next, left, err = a.resumeSome(ctx, from.Partition(n), from.name, cursor, batch)
				return left, 0, err
			})
			if err != nil {
				return p.progress, err
			}
			if done+len(left) > 0 {
				p.add(done, left)
			}
			if cursor = next; cursor == "0" {
				break
			}
		}
	}
	return p.progress, nil
}

// resumeSome takes over some moves of a partition and goes on with them.
func (a *Admin) resumeSome(
	ctx context.Context, p *queue.Partition, name, cursor, batch string,
) (done int, next string, left []skipped, err error) {
	old, _, damaged, err := p.Moves(ctx, cursor, certainFor)
	if err != nil {
		return 0, "", nil, err
	}
	if damaged != nil {
		left = append(left, skipped{"", damaged})
	}
	n, more, err := a.settleOld(ctx, p, old)
	if left = append(left, more...); err != nil {
		return n, "", left, err
	}
	moves, next, err := p.TakeOver(ctx, cursor, batch, resumeAfter, certainFor)
	if err != nil {
		return n, "", left, err
	}
	groups, partitions := map[string][]string{}, map[string]int{}
	for _, m := range moves {
		groups[m.Group] = append(groups[m.Group], m.ID)
		partitions[m.To] = max(partitions[m.To], m.Partition+1)
	}
	for to, least := range partitions { // it may have been deleted
		if _, err := opened(ctx, a.store.Topic(to), least); err != nil {
			return n, "", left, err
		}
	}
	for group, ids := range groups {
		more, err := a.carry(ctx, name, p.Group(group), batch, ids)
		left = append(left, more...)
		if n += len(ids) - len(more); err != nil {
			return n, "", left, err
		}
	}
	return n, next, left, nil
}

// settleOld ends moves of which nobody remembers whether they have arrived, as far as the
// messages are in the other topic.
func (a *Admin) settleOld(ctx context.Context, p *queue.Partition, moves []queue.Move) (done int, left []skipped, err error) {
	for _, m := range moves {
		arrival := queue.Arrival{ID: m.ID, Move: m.Name}
		outcomes, err := a.store.Topic(m.To).Partition(m.Partition).Arrived(ctx, []queue.Arrival{arrival})
		if err != nil {
			return done, left, err
		}
		if outcomes[0] != queue.OutcomeKnown {
			why := fmt.Errorf("%w: to %q, since %s", ErrMoveTooOld, m.To, m.Since.UTC().Format(time.RFC3339))
			left = append(left, skipped{m.ID, why})
			continue
		}
		if err := p.Group(m.Group).EndMove(ctx, m.Batch, []queue.Ending{{ID: m.ID, Arrived: true}}); err != nil {
			return done, left, err
		}
		done++
	}
	return done, left, nil
}
