package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// line is an ordering key in a partition.
type line struct {
	partition int
	key       string
}

// turn records which message of an ordering key has the turn, as claims show: from the claim of a message until
// its group has settled it. It is kept apart from the store, to check it. World.mu guards it.
type turn struct {
	owner *track
	freed time.Time // when the last one ended
}

// turnOf returns the turn of a message's ordering key; nil if it has none.
func (t *track) turnOf() *turn {
	key := script.TraitsOf(t.m.id).OrderingKey
	if key == "" {
		return nil
	}
	l := line{t.m.partition, key}
	if t.group.turns[l] == nil {
		t.group.turns[l] = &turn{}
	}
	return t.group.turns[l]
}

// takeTurn fails if another message of the ordering key is not settled, or precedes this one.
func (w *World) takeTurn(t *track) {
	turn := t.turnOf()
	if turn == nil || turn.owner == t {
		return
	}
	if turn.owner != nil {
		w.fail("turns", t.m.id, "is claimed while its ordering key waits for %s", alias(turn.owner.m.id))
	}
	for _, other := range t.group.open {
		if other != t && other.turnOf() == turn && other.due.Before(t.due) {
			w.fail("turns", t.m.id, "is claimed before %s, which was due %v earlier", alias(other.m.id), t.due.Sub(other.due))
		}
	}
	turn.owner = t
}

// endTurn ends the turn of a message that its group has settled.
func (t *track) endTurn() {
	if turn := t.turnOf(); turn != nil && turn.owner == t {
		turn.owner, turn.freed = nil, time.Now()
	}
}

// turnFree returns since when no other message of the ordering key has had the turn; ok is false if one has it.
func (t *track) turnFree() (since time.Time, ok bool) {
	turn := t.turnOf()
	if turn == nil || turn.owner == t {
		return time.Time{}, true
	}
	return turn.freed, turn.owner == nil
}

// turns publishes messages with ordering keys to many consumers, some of which die. A key has at most as many
// messages as one handler at a time can handle.
func turns(r *rand.Rand, p *Plan) {
	if chance(r, 0.7) {
		p.Faults.Every, p.Faults.Background = 8*time.Second, pick(r, 0, 0.001)
		p.Faults.Storms, p.Faults.Killed, p.Faults.Stopped, p.Faults.Leaves = 1, 2, 1, 1
	}
	paces(p, Pace{For: between(r, time.Second, 5*time.Second), Max: time.Millisecond}, Pace{For: time.Second, Max: pick(r, time.Millisecond, 20*time.Millisecond)})
	lines := pick(r, 1, 3, 20, 200)
	for i := range p.Publishers {
		p.Publishers[i] = PublisherPlan{
			MinBatch: 1, MaxBatch: 2 * min(lines, 20), MinGap: 200 * time.Millisecond, MaxGap: time.Second, Lines: lines,
			Delayed: pick(r, 0, 0.3), MaxDelay: time.Second,
		}
	}
}

// anyOrderingKey draws an ordering key; "" if the publisher uses none.
func (p *publisher) anyOrderingKey() string {
	if p.plan.Lines == 0 {
		return ""
	}
	return fmt.Sprintf("o%d", p.rng.IntN(p.plan.Lines))
}
