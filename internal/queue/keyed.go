package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// maxCallers is how many calls of Cancel and Reschedule go to Redis at once.
	maxCallers = 16

	// forever is until when a call counts that may come at any time, in ms by Redis's clock.
	forever = 1 << 52
)

var (
	// ErrNotFound says that a key or an id leads to no message, or for Reschedule to none that waits.
	ErrNotFound = errors.New("there is no such message")

	// errHeld is the ErrNotFound of a message that Reschedule leaves to the handlers that have it.
	errHeld = fmt.Errorf("%w that waits: it is being handled", ErrNotFound)

	// ErrDead says that only dead letters are left of the message, and perhaps acks.
	ErrDead = fmt.Errorf("%w to change: it is a dead letter", ErrNotFound)
)

// callers number the requests of Cancel and Reschedule, each caller one at a time: by
// name and number, Redis distinguishes a repeated request from a new one.
type callers struct {
	start sync.Once
	idle  chan *caller
}

type caller struct {
	name       string
	request    int64
	until      int64 // forever; or 0: its calls count as long as it waits for them
	repeatable bool  // a copy of a call may still run
}

// free are the callers that are not in use.
func (c *callers) free() chan *caller {
	c.start.Do(func() {
		name := rand.Text()
		c.idle = make(chan *caller, maxCallers)
		for i := range maxCallers {
			c.idle <- &caller{name: fmt.Sprintf("%s/%d", name, i)}
		}
	})
	return c.idle
}

// take waits for an idle caller, for as long as ctx lasts.
func (c *callers) take(ctx context.Context) (*caller, error) {
	select {
	case one := <-c.free():
		one.request++
		return one, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *callers) put(one *caller) { c.idle <- one }

// over are the names of those that have made calls of which no copy can run any more, unless
// they are in use.
func (c *callers) over() (names []string) {
	for range len(c.free()) {
		select {
		case one := <-c.idle:
			if one.request > 0 && !one.repeatable {
				names = append(names, one.name)
			}
			c.idle <- one
		default:
			return names
		}
	}
	return names
}

// Cancel takes back the message that a key leads to, from all groups that wait for it or
// handle it. It returns ErrNotFound when there is none, and where the message was.
func (p *Partition) Cancel(ctx context.Context, key string) (Status, error) {
	return p.change(ctx, cancelScript, "key", key)
}

// CancelID is Cancel of the message with an id.
func (p *Partition) CancelID(ctx context.Context, id string) (Status, error) {
	return p.change(ctx, cancelScript, "id", id)
}

// Reschedule makes the waiting message that a key leads to due after a delay. It returns
// ErrNotFound when there is none, or none that waits, and where the message was.
func (p *Partition) Reschedule(ctx context.Context, key string, delay time.Duration) (Status, error) {
	return p.change(ctx, rescheduleScript, "key", key, "in", script.Milliseconds(delay))
}

// RescheduleAt is Reschedule to a time by Redis's clock, in ms.
func (p *Partition) RescheduleAt(ctx context.Context, key string, due int64) (Status, error) {
	return p.change(ctx, rescheduleScript, "key", key, "at", due)
}

// RescheduleID is RescheduleAt of the message with an id.
func (p *Partition) RescheduleID(ctx context.Context, id string, due int64) (Status, error) {
	return p.change(ctx, rescheduleScript, "id", id, "at", due)
}

// CancelOnce is Cancel for a publisher with numbered batches. Of all calls with the same publisher and number, only one takes
// a message back. After a batch or another change with a higher number, none does.
func (t *Topic) CancelOnce(ctx context.Context, publisher string, number int64, key string) (Status, error) {
	return t.changeOnce(ctx, publisher, number, cancelScript, "key", key)
}

// RescheduleOnce is RescheduleAt likewise: one call chooses the message and its due time, and others may set it again.
func (t *Topic) RescheduleOnce(ctx context.Context, publisher string, number int64, key string, due int64) (Status, error) {
	return t.changeOnce(ctx, publisher, number, rescheduleScript, "key", key, "at", due)
}

// changeOnce needs no time limit: a late copy finds the record of the request or of a later one. With a limit of 0, a first call
// that finds nothing leaves no record; so a topic that is not listed, whose name may be mistyped, gets none.
func (t *Topic) changeOnce(ctx context.Context, publisher string, number int64, s *script.Script, which ...any) (Status, error) {
	return t.withKey(ctx, func(ctx context.Context, p *Partition) (Status, error) {
		c := caller{name: publisher, request: number}
		if t.store.knowsListed(t.name) {
			c.until = forever
		}
		return p.changeAs(ctx, &c, s, which...)
	})
}

// change makes one request of Cancel or Reschedule; which says how the message is found, and when it
// is due. The first call asks for the groups, whose keys the script needs, and for Redis's time; later
// calls say until when they count. So a copy of a call that Redis runs later, when nobody waits for it,
// leaves alone the message that holds the key by then.
func (p *Partition) change(ctx context.Context, s *script.Script, which ...any) (Status, error) {
	c, err := p.callers.take(ctx)
	if err != nil {
		return Status{}, err
	}
	defer p.callers.put(c)
	return p.changeAs(ctx, c, s, which...)
}

// changeAs is change for one caller.
func (p *Partition) changeAs(ctx context.Context, c *caller, s *script.Script, which ...any) (Status, error) {
	until := c.until
	var groups []string
	for range 6 {
		reply, err := p.callAs(ctx, c, s, until, which, groups)
		if err != nil {
			return Status{}, err
		}
		if !reply.Begins("groups") {
			return statusOf(reply)
		}
		all, err := knownOf(reply)
		if err != nil {
			return Status{}, err
		}
		groups = all.names
		if c.until == 0 {
			until = all.asOf + script.Patience(ctx).Milliseconds()
		}
	}
	return Status{}, ErrGroupsKeepChanging
}

// callAs makes one call of a caller.
func (p *Partition) callAs(
	ctx context.Context, c *caller, s *script.Script, until int64, which []any, groups []string,
) (script.Reply, error) {
	name := &script.Written{Text: c.name}
	args := slices.Concat([]any{name, c.request, until}, which, []any{p.Channel()}, script.Strings(groups))
	reply, err := p.Run(ctx, s, "", args, groups...)
	c.repeatable = c.repeatable || err != nil || !name.Once()
	return reply, err
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
	StateDead       State = "dead"        // a dead letter
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

// some tells whether the message is in a state for any group.
func (s Status) some(state State) bool {
	for _, other := range s.Groups {
		if other == state {
			return true
		}
	}
	return false
}
