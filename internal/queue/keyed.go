package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

var (
	// ErrNotFound says that a key or an id leads to no message, or for Reschedule to none that waits.
	ErrNotFound = errors.New("there is no such message")

	// errHeld is the ErrNotFound of a message that Reschedule leaves to the handlers that have it.
	errHeld = fmt.Errorf("%w that waits: it is being handled", ErrNotFound)

	// ErrDead says that only dead messages are left of the message, and perhaps acks.
	ErrDead = fmt.Errorf("%w to change: it is a dead message", ErrNotFound)
)

func cancelBy(by, name string) request {
	return request{script: cancelScript, which: []any{by, name}}
}

// rescheduleBy is for a due time: "at", in ms by Redis's clock, or "in" ms.
func rescheduleBy(by, name, when string, ms int64) request {
	return request{script: rescheduleScript, which: []any{by, name, when, ms}}
}

// Cancel takes back the message that a key leads to, from all groups that wait for it or
// handle it. It returns ErrNotFound when there is none, and where the message was. After any other error
// but an ErrOutcomeUnknown, nothing has changed.
func (p *Partition) Cancel(ctx context.Context, key string) (Status, error) {
	return p.changeOne(ctx, cancelBy("key", key))
}

// CancelID is Cancel of the message with an id.
func (p *Partition) CancelID(ctx context.Context, id string) (Status, error) {
	return p.changeOne(ctx, cancelBy("id", id))
}

// Reschedule makes the waiting message that a key leads to due after a delay. It returns
// ErrNotFound when there is none, or none that waits, and where the message was; other errors are those of Cancel.
func (p *Partition) Reschedule(ctx context.Context, key string, delay time.Duration) (Status, error) {
	return p.changeOne(ctx, rescheduleBy("key", key, "in", script.Milliseconds(delay)))
}

// RescheduleAt is Reschedule to a time by Redis's clock, in ms.
func (p *Partition) RescheduleAt(ctx context.Context, key string, due int64) (Status, error) {
	return p.changeOne(ctx, rescheduleBy("key", key, "at", due))
}

// RescheduleID is RescheduleAt of the message with an id.
func (p *Partition) RescheduleID(ctx context.Context, id string, due int64) (Status, error) {
	return p.changeOne(ctx, rescheduleBy("id", id, "at", due))
}

func (p *Partition) changeOne(ctx context.Context, r request) (Status, error) {
	status, _, err := p.change(ctx, r)
	return status, err
}

// Cancel takes back the message that a key leads to; see Partition.Cancel.
func (t *Topic) Cancel(ctx context.Context, key string) (Status, error) {
	return t.change(ctx, cancelBy("key", key))
}

// Reschedule gives the message that a key leads to another due time; see
// Partition.Reschedule.
func (t *Topic) Reschedule(ctx context.Context, key string, delay time.Duration) (Status, error) {
	return t.change(ctx, rescheduleBy("key", key, "in", script.Milliseconds(delay)))
}

// CancelID takes back the message with an id; see Partition.CancelID.
func (t *Topic) CancelID(ctx context.Context, id string) (Status, error) {
	return t.change(ctx, cancelBy("id", id))
}

// RescheduleAt gives the message that a key leads to another due time; see
// Partition.RescheduleAt.
func (t *Topic) RescheduleAt(ctx context.Context, key string, due int64) (Status, error) {
	return t.change(ctx, rescheduleBy("key", key, "at", due))
}

// RescheduleID gives the message with an id another due time; see Partition.RescheduleID.
func (t *Topic) RescheduleID(ctx context.Context, id string, due int64) (Status, error) {
	return t.change(ctx, rescheduleBy("id", id, "at", due))
}

// CancelOnce is Cancel for a publisher with numbered batches. Of all calls with the same publisher and number, only one takes
// a message back. After a batch or another change with a higher number, none does.
func (t *Topic) CancelOnce(ctx context.Context, publisher string, number int64, key string) (Status, error) {
	return t.changeOnce(ctx, publisher, number, cancelBy("key", key))
}

// RescheduleOnce is RescheduleAt likewise: one call chooses the message and its due time, and others may set it again.
func (t *Topic) RescheduleOnce(ctx context.Context, publisher string, number int64, key string, due int64) (Status, error) {
	return t.changeOnce(ctx, publisher, number, rescheduleBy("key", key, "at", due))
}

// changeOnce needs no time limit: a late copy finds the record of the request or of a later one. A topic that is not listed,
// whose name may be mistyped, gets no record, as with Cancel.
func (t *Topic) changeOnce(ctx context.Context, publisher string, number int64, r request) (Status, error) {
	if err := t.understand(ctx); err != nil {
		return Status{}, unchanged(err)
	}
	r.as = caller{name: publisher, request: number}
	if t.store.knowsListed(t.name) {
		r.as.until = forever
	}
	return t.change(ctx, r)
}

// change makes a call in all partitions: a key is in one of them, or in several if the number of partitions was raised
// between two messages. It returns the status of a message that was changed, else of one that was found; of several, the one
// that was published last. It returns an ErrNotFound if no message was changed.
//
// The first partition tells how many there are, together with its answer: no message that was published before the call is
// overlooked, though its partition is new.
func (t *Topic) change(ctx context.Context, r request) (Status, error) {
	if err := t.understand(ctx); err != nil {
		return Status{}, unchanged(err)
	}
	best := finding{err: ErrNotFound}
	known := t.opened()
	number, err := t.changeIn(ctx, r, 0, known, &best)
	if err == nil && number > known {
		_, err = t.changeIn(ctx, r, known, number, &best)
	}
	switch {
	case err == nil:
		return best.status, best.err
	case best.err == nil && !errors.Is(err, ErrOutcomeUnknown):
		return best.status, unknown(err) // it has taken effect in another partition
	default:
		return best.status, err
	}
}

// changeIn makes a call in a range of partitions, and returns how many there are if the first one is among them.
func (t *Topic) changeIn(ctx context.Context, r request, from, to int, best *finding) (number int, err error) {
	var mu sync.Mutex // guards number and best
	err = t.Visit(ctx, from, to, func(ctx context.Context, p *Partition) error {
		r := r
		r.counts = p.Number() == 0
		status, partitions, err := p.change(ctx, r)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		number = max(number, partitions)
		best.add(finding{status, err})
		return nil
	})
	return number, err
}

// finding is what a call found in a partition. The error is nil if it changed the message.
type finding struct {
	status Status
	err    error
}

// add keeps the better of two findings.
func (f *finding) add(other finding) {
	changed, before := other.err == nil, f.err == nil
	if changed && !before || changed == before && other.status.ID > f.status.ID {
		*f = other
	}
}

// Status says where a message stood when Redis ran a call of Cancel or Reschedule. The
// zero value says that there was none.
type Status struct {
	ID        string
	Scheduled bool             // not given to the groups yet
	Groups    map[string]State // of each group that it was given to, and of those that came later
}

// State is where a message is for a group.
type State string

// The states of a message for a group, as the scripts name them.
const (
	StateQueued     State = "queued"      // for its first delivery that counts
	StateRetrying   State = "retrying"    // waits after a delivery that failed
	StateInDelivery State = "in-delivery" // a consumer has it, or was lost with it
	StateDone       State = "done"        // acked, or the group came after the message
	StateDead       State = "dead"        // a dead message
)

// statusOf reads the answer of cancel or reschedule.
func statusOf(reply script.Reply) (Status, error) {
	how := reply.Text()
	if how == "none" && reply.Len() == 0 {
		return Status{}, ErrNotFound
	}
	s := Status{ID: reply.Text(), Scheduled: reply.Text() != "", Groups: map[string]State{}}
	for reply.More() {
		group := reply.Text()
		s.Groups[group] = State(reply.Text())
	}
	if err := reply.End(); err != nil {
		return Status{}, err
	}
	switch {
	case how != "none":
		return s, nil
	case s.some(StateDead) && !s.some(StateInDelivery):
		return s, ErrDead
	default:
		return s, errHeld
	}
}

// some reports whether the message is in a state for any group.
func (s Status) some(state State) bool {
	for _, other := range s.Groups {
		if other == state {
			return true
		}
	}
	return false
}
