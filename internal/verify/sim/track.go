package sim

import (
	"context"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// outcome is the result of a Publish call.
type outcome int

const (
	pending outcome = iota
	accepted
	refused // certainly not stored
	unknown
)

// item is a published message. All its fields are guarded by World.mu.
type item struct {
	id        string
	publisher string
	partition int
	due       time.Time // set when it is stored
	made      time.Time // just before its Publish
	said      time.Time // when Publish returned
	notBefore time.Time
	outcome   outcome
	stored    bool
	ignored   bool // not stored because its key was in use
	gone      bool // replaced or cancelled
	size      int
	slow      time.Duration // how long its handler takes; 0: as long as others
	killer    bool
	tracks    map[string]*track // by group
}

// place is the state of a message in a group.
type place int

const (
	waiting place = iota // to be claimed
	leased               // to holder
	done                 // acked, dead, cancelled or replaced
)

// track is a message on its way to a group. All its fields are guarded by World.mu.
type track struct {
	m         *item
	group     *group
	place     place
	due       time.Time // when it may be claimed
	notBefore time.Time // when it may be handed out
	since     time.Time // since when it waits for a handler without an accepted reason
	ready     time.Time // since when it could be claimed, this time
	claimed   time.Time // when it was last claimed
	index     int       // in group.open

	holder   *consumer // the consumer that has the lease
	receipt  store.Receipt
	deadline time.Time // of the lease
	received time.Time // when the reply to the claim arrived
	slow     bool      // the reply was too slow to rely on the lease
	handed   bool      // to a handler
	handler  context.Context

	seen    int  // how many handlers have seen it since it was published or requeued
	retried bool // it was returned by a handler
	expired bool // its lease has ended
}

// group is a consumer group. All its fields are guarded by World.mu.
type group struct {
	name      string
	plan      GroupPlan
	ordered   bool
	rules     map[int]*rules // by partition
	turns     map[line]*turn
	usage     usage
	open      []*track // waiting, or leased and not handed out
	consumers []*consumer
	last      *track    // handed out last
	lastDue   time.Time // its due time then
}

// follow starts tracking a message of a group.
func (g *group) follow(m *item, due, now time.Time) *track {
	t := &track{m: m, group: g, due: due, since: latest(due, now), ready: latest(due, now), notBefore: m.notBefore}
	m.tracks[g.name] = t
	g.add(t)
	return t
}

func (g *group) add(t *track) {
	if t.index == 0 {
		g.open = append(g.open, t)
		t.index = len(g.open)
	}
}

// drop removes a message that no longer waits.
func (g *group) drop(t *track) {
	if t.index == 0 {
		return
	}
	last := g.open[len(g.open)-1]
	g.open[t.index-1], last.index = last, t.index
	g.open = g.open[:len(g.open)-1]
	t.index = 0
}

// current reports whether a delivery is the message's last one and not settled.
func (t *track) current(receipt store.Receipt) bool {
	return t.place == leased && t.receipt.Token == receipt.Token
}

// holds reports whether a consumer has this delivery.
func (t *track) holds(c *consumer, receipt store.Receipt) bool {
	return t.holder == c && t.current(receipt)
}

// release ends the lease of the message.
func (t *track) release() {
	if t.holder != nil && t.place == leased && !t.handed && !t.received.IsZero() {
		t.holder.held--
		t.holder.heldBytes -= t.m.size
	}
	t.holder, t.received, t.slow, t.handed = nil, time.Time{}, false, false
}

// rules returns the rules of the group in the message's partition.
func (t *track) rules() *rules { return t.group.at(t.m.partition) }

// end records that the group has acked or buried the message, or that it was cancelled or replaced.
func (t *track) end() {
	if t.place == leased {
		t.rules().settled(time.Now())
	}
	t.release()
	t.place = done
	t.group.drop(t)
	t.endTurn()
}

// back records that the message is due again.
func (t *track) back(due, now time.Time) {
	handed := t.handed
	if t.place == leased {
		t.rules().settled(now)
	}
	t.release()
	t.place, t.due, t.ready = waiting, due, latest(due, now)
	t.retried = t.retried || handed
	if handed || due.After(now) {
		t.since = due
	}
	t.group.add(t)
}

// move records that the message has another due time.
func (t *track) move(due, now time.Time) {
	t.due, t.notBefore, t.retried = due, due, true
	t.since, t.ready = latest(due, now), latest(due, now)
}
