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
	// ErrNotFound says that a key or id leads to no message or, for Reschedule, to none that waits.
	ErrNotFound = errors.New("there is no such message")

	// errHeld is the ErrNotFound of Reschedule for a message that only handlers have.
	errHeld = fmt.Errorf("%w that waits: it is being handled", ErrNotFound)

	// ErrDead says that the message is a dead message for some groups, and the other groups have acked it.
	ErrDead = fmt.Errorf("%w to change: it is a dead message", ErrNotFound)
)

func cancelBy(by, name string) request {
	return request{script: cancelScript, which: []any{by, name}}
}

// rescheduleBy returns a request with a due time: "at", in ms by Redis's clock, or "in" ms.
func rescheduleBy(by, name, when string, ms int64) request {
	return request{script: rescheduleScript, which: []any{by, name, when, ms}}
}

// CancelID is Topic.CancelID for a message that is in this partition.
func (p *Partition) CancelID(ctx context.Context, id string) (Status, error) {
	status, _, err := p.change(ctx, cancelBy("id", id))
	return status, err
}

// Cancel removes the message that a key leads to from all groups that wait for it or handle it, and
// returns its status before that. It returns ErrNotFound if there is none. After any other error except
// ErrOutcomeUnknown, nothing has changed.
func (t *Topic) Cancel(ctx context.Context, key string) (Status, error) {
	return t.change(ctx, cancelBy("key", key))
}

// CancelID is Cancel of the message with an id.
func (t *Topic) CancelID(ctx context.Context, id string) (Status, error) {
	return t.change(ctx, cancelBy("id", id))
}

// Reschedule makes the waiting message that a key leads to due after a delay, and returns its status before that.
// It returns ErrNotFound if there is none, or none that waits. Other errors are those of Cancel.
func (t *Topic) Reschedule(ctx context.Context, key string, delay time.Duration) (Status, error) {
	return t.change(ctx, rescheduleBy("key", key, "in", script.Milliseconds(delay)))
}

// RescheduleAt is Reschedule with a due time by Redis's clock, in ms.
func (t *Topic) RescheduleAt(ctx context.Context, key string, due int64) (Status, error) {
	return t.change(ctx, rescheduleBy("key", key, "at", due))
}

// RescheduleID is RescheduleAt of the message with an id.
func (t *Topic) RescheduleID(ctx context.Context, id string, due int64) (Status, error) {
	return t.change(ctx, rescheduleBy("id", id, "at", due))
}

// CancelOnce is Cancel for a publisher with numbered batches. Of several calls with the same publisher and number, only one
// removes a message. After a batch or another change with a higher number, none does.
func (t *Topic) CancelOnce(ctx context.Context, publisher string, number int64, key string) (Status, error) {
	return t.changeAs(ctx, publisher, number, cancelBy("key", key))
}

// RescheduleOnce is RescheduleAt for such a publisher: the first call chooses the message and its due time, which repeated calls set
// again.
func (t *Topic) RescheduleOnce(ctx context.Context, publisher string, number int64, key string, due int64) (Status, error) {
	return t.changeAs(ctx, publisher, number, rescheduleBy("key", key, "at", due))
}

// changeAs is change with the publisher as the caller. It needs no time limit, because a late copy finds the record of this
// or a later request. A topic that is not listed, whose name may be mistyped, gets no record, as with Cancel.
func (t *Topic) changeAs(ctx context.Context, publisher string, number int64, r request) (Status, error) {
	if err := t.checkFormat(ctx); err != nil {
		return Status{}, unchanged(err)
	}
	r.as = caller{name: publisher, request: number}
	if t.store.knowsListed(t.name) {
		r.as.until = forever
	}
	return t.change(ctx, r)
}

// change makes a call in all partitions: a key is in one of them, or in several if the number of partitions was raised
// between two messages. It returns the status of a changed message if there is one, else of a found one; of several, the one
// that was published last. It returns ErrNotFound if no message was changed.
//
// The first partition returns its answer together with the number of partitions, so the call also covers a message that was
// published before it in a new partition.
func (t *Topic) change(ctx context.Context, r request) (Status, error) {
	if err := t.checkFormat(ctx); err != nil {
		return Status{}, unchanged(err)
	}
	best := changeResult{err: ErrNotFound}
	known := t.opened()
	number, err := t.changeIn(ctx, r, 0, known, &best)
	if err == nil && number > known {
		_, err = t.changeIn(ctx, r, known, number, &best)
	}
	switch {
	case err == nil:
		return best.status, best.err
	case best.err == nil && !errors.Is(err, ErrOutcomeUnknown):
		return best.status, unknown(err) // the call has taken effect in another partition
	default:
		return best.status, err
	}
}

// changeIn makes a call in a range of partitions, and returns the number of partitions if the first one is in the range.
func (t *Topic) changeIn(ctx context.Context, r request, from, to int, best *changeResult) (number int, err error) {
	var mu sync.Mutex // guards number and best
	err = t.EachIn(ctx, from, to, func(ctx context.Context, p *Partition) error {
		r := r
		r.counts = p.Number() == 0
		status, partitions, err := p.change(ctx, r)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		number = max(number, partitions)
		best.add(changeResult{status, err})
		return nil
	})
	return number, err
}

// changeResult is the result of a call in a partition. The error is nil if the call changed the message.
type changeResult struct {
	status Status
	err    error
}

// add keeps the better of two results.
func (r *changeResult) add(other changeResult) {
	changed, before := other.err == nil, r.err == nil
	if changed && !before || changed == before && other.status.ID > r.status.ID {
		*r = other
	}
}

// Status is the state of a message before Cancel or Reschedule changed it. The zero value says that
// there was no message.
type Status struct {
	ID        string
	Scheduled bool             // not given to the groups yet
	Groups    map[string]State // of each group that it was given to, and of groups registered later
}

// State is the state of a message in a group.
type State string

// The states of a message in a group, as the scripts name them.
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
	case s.hasGroupIn(StateDead) && !s.hasGroupIn(StateInDelivery):
		return s, ErrDead
	default:
		return s, errHeld
	}
}

// hasGroupIn reports whether the message is in a state for any group.
func (s Status) hasGroupIn(state State) bool {
	for _, other := range s.Groups {
		if other == state {
			return true
		}
	}
	return false
}
