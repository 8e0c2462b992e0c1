package store

import "slices"

// fanOutEntries is how many entries one claim adds to the queues of all groups at most.
const fanOutEntries = 4000

// maxBuried is how many messages a claim may bury if its limit is lower: MAX_BURIED of claim.lua.
const maxBuried = 100

// busyMS is how soon after its last claim a consumer claims without notifying the others.
const busyMS = 2

// Request asks for due messages.
type Request struct {
	Group, Consumer string
	Number          int64
	Limit           int // messages, 1 to 1000
	Free            int // free workers
	Lease           int64
	MaxDeliveries   int
	Bytes           int   // stop at this many bytes of messages
	Alive           int64 // for how many ms the consumer counts as alive; 0: it reports nothing
}

// Claimed is a leased message.
type Claimed struct {
	ID       string
	Receipt  Receipt
	Due      int64 // ms
	Body     []byte
	Metadata []byte // as a nack set it
}

// Buried is a message that was made a dead message.
type Buried struct{ ID, Reason string }

// Claims is the answer to a Request.
type Claims struct {
	Now         int64 // ms
	Deadline    int64 // of the leases, ms
	Messages    []Claimed
	Buried      []Buried
	Wait        int64 // µs until the next is due; negative: none is scheduled; below -2: -2 less the number of a later request
	NeedsWorker bool  // the next message needs a free worker
	Replayed    bool
	Returned    []Release // by a repeated request: messages that went back to the queue
	Ending      bool      // groups may end soon
}

// claimed is the record of a consumer.
type claimed struct {
	number   int64
	ms       int64
	deadline int64
	messages []Claimed
	buried   []Buried
}

// Claim leases due messages. A repeated request gets the same messages if they are still held. ok
// is false if the group is not registered.
func (p *Partition) Claim(now int64, r Request) (claims Claims, ok bool) {
	g := p.groups[r.Group]
	if g == nil || !g.registered {
		return Claims{}, false
	}
	deadline := ceilMS(now) + r.Lease
	last, known := g.claims[r.Consumer]
	switch {
	case known && last.number == r.Number:
		return p.replay(g, now, r), true
	case known && last.number > r.Number:
		return Claims{Now: nowMS(now), Deadline: deadline, Wait: -2 - last.number, Replayed: true, Ending: p.ending(now)}, true
	}
	b := p.boundsOf(g, r, now)
	b.idle = known && p.idle(g, r, now, last)
	claims = Claims{Now: nowMS(now), Deadline: deadline, Ending: p.ending(now)}
	all := p.take(g, &claims, &r, b, now)
	p.spend(r.Group, &b, len(claims.Messages))
	g.claims[r.Consumer] = claimed{r.Number, nowMS(now), deadline, claims.Messages, claims.Buried}
	if len(claims.Buried) > 0 {
		p.releaseCapacity(g, r.Group)
	}
	p.answer(g, &claims, r, b, now, all)
	if !known || last.ms/1000 != nowMS(now)/1000 {
		g.noteAlive(now, r.Consumer, r.Alive)
	}
	busy := known && nowMS(now)-last.ms < busyMS
	if !claims.NeedsWorker && claims.Wait != 0 && !busy && len(g.claims) > 1 {
		found := len(claims.Messages) + len(claims.Buried)
		p.notify(Notice{Wait: claims.Wait, Group: r.Group, Claimed: true, Found: found, Consumer: r.Consumer})
	}
	return claims, true
}

// idle reports whether lib_idle answers a claim: no message is due, and nothing unusual is to do. It
// does not check for pauses.
func (p *Partition) idle(g *group, r Request, now int64, last claimed) bool {
	_, seen := g.consumers[r.Consumer]
	return p.wait(g, now) != 0 && len(g.turns) == 0 && !p.ending(now) && len(g.claims) == 1 && (seen || r.Alive == 0) &&
		last.ms/hourMS == nowMS(now)/hourMS
}

// batch is what a claim decides to do.
type batch struct {
	messages []Claimed
	buried   []Buried
	waiting  []waiting
	owners   map[string]string // ordering key -> the message that has the turn, if the claim has read it
	size     int               // bytes
}

// waiting is a message that is due while its ordering key is busy.
type waiting struct {
	entry
	orderKey string
	first    bool // the lease of its first claim, which leaves no entry, has expired
}

// take leases and buries messages within the bounds, and lets messages wait in line. It reports whether it
// has taken all messages that it has checked, and no turn was healed.
func (p *Partition) take(g *group, claims *Claims, r *Request, b bounds, now int64) (all bool) {
	r.Limit = b.limit
	halts, hasTurns := p.halts(r.Group), len(g.turns) > 0
	reach, further := p.reach(g, *r, now)
	expired := g.unack.upTo(nowMS(now), reach)
	count := min(r.Limit-len(expired), max(0, b.room)) // messages with expired leases are in unack already
	if further {
		count = reach - len(expired)
	}
	fresh := p.due(g, nowMS(now), count)
	taken := &batch{owners: map[string]string{}}
	considered, all := 0, true
	for i, e := range append(slices.Clone(expired), fresh...) {
		if i == len(expired) {
			r.Limit = min(r.Limit, len(taken.messages)+max(0, b.room+len(taken.buried)))
		}
		if all = p.consider(g, taken, e, i < len(expired), halts, *r, claims); !all {
			break
		}
		considered++
	}
	p.carryOut(g, claims, taken, fresh[:max(0, considered-len(expired))], halts, now)
	if hasTurns && g.heal(halts) {
		all = false
	}
	g.halted = false
	return all
}

// reach returns how many messages a claim checks, and whether that may be more than its limit.
func (p *Partition) reach(g *group, r Request, now int64) (count int, further bool) {
	if r.Limit == 0 {
		return 0, false
	}
	for _, z := range []*zset{&p.scheduled, &g.queue} {
		if g.beginsBusy(z, nowMS(now)) {
			return max(r.Limit, maxInLine), true
		}
	}
	if r.MaxDeliveries > 0 && (g.beginsExhausted(&g.unack, nowMS(now), r) || g.beginsExhausted(&g.queue, nowMS(now), r)) {
		return max(r.Limit, maxBuried), true
	}
	return r.Limit, false
}

// carryOut carries out the decisions of a claim.
func (p *Partition) carryOut(g *group, claims *Claims, b *batch, fresh []entry, halts bool, now int64) {
	for _, e := range fresh {
		g.queue.remove(e.id)
		p.scheduled.remove(e.id)
	}
	for _, w := range b.waiting {
		if g.unack.remove(w.id); w.first {
			g.attempts[w.id] = next(firstClaim, false, true).unseen()
		}
		g.join(w.orderKey, w.score, w.id)
	}
	for _, m := range b.messages {
		if m.Receipt != firstClaim {
			g.attempts[m.ID] = m.Receipt
		}
		g.unack.add(claims.Deadline, m.ID)
		if orderKey := orderKeyOf(m.ID); orderKey != "" {
			g.turns[orderKey] = m.ID
		}
	}
	for _, d := range b.buried {
		p.toDead(g, d.ID, nowMS(now), d.Reason)
		if !halts {
			g.passTurn(orderKeyOf(d.ID), d.ID)
		}
	}
	claims.Messages, claims.Buried = b.messages, b.buried
}

// answer completes the answer to a claim with the time of the next claim. all says that the claim has
// not stopped before a message, and has healed no turn; otherwise, the group claims again at once.
func (p *Partition) answer(g *group, claims *Claims, r Request, b bounds, now int64, all bool) {
	switch {
	case b.paused && !b.idle:
		claims.Wait = b.pauseLasts(now)
		return
	case claims.NeedsWorker:
		return
	case all:
		claims.Wait = p.wait(g, now)
	}
	if claims.Wait != 0 || !b.limited {
		return
	}
	claims.Wait = g.heldBack(b, now)
	claims.NeedsWorker = claims.Wait == 0 && b.scarce && len(claims.Messages) >= r.Free
}

// beginsExhausted reports whether the first due message must be buried.
func (g *group) beginsExhausted(z *zset, now int64, r Request) bool {
	for _, e := range z.upTo(now, 1) {
		return g.attempts[e.id].spent(r.MaxDeliveries)
	}
	return false
}

// consider adds a message to a batch, to lease it, bury it or let it wait in line; false if the claim must
// end before it.
func (p *Partition) consider(g *group, b *batch, e entry, lost, halts bool, r Request, claims *Claims) bool {
	body, stored := p.messages[e.id]
	bytes := len(body) + len(g.nackMetadata[e.id])
	last, retried := g.attempts[e.id]
	if !retried && lost {
		last = firstClaim
	}
	orderKey := orderKeyOf(e.id)
	switch {
	case last.spent(r.MaxDeliveries):
		b.buried = append(b.buried, Buried{e.id, last.reason(r.MaxDeliveries)})
		return true
	case !stored:
		b.buried = append(b.buried, Buried{e.id, "message body is missing"})
		return true
	case orderKey != "" && g.busy(b, orderKey, e.id, halts):
		b.waiting = append(b.waiting, waiting{e, orderKey, lost && !retried})
		return true
	case len(b.messages) == r.Limit:
		return false
	case (retried || lost) && next(last, retried, lost) != aheadAgain && len(b.messages) >= r.Free:
		claims.NeedsWorker = true
		return false
	case len(b.messages) > 0 && b.size+bytes > r.Bytes:
		return false
	}
	b.size += bytes
	b.messages = append(b.messages, Claimed{
		ID: e.id, Receipt: next(last, retried, lost), Due: e.score, Body: body, Metadata: g.nackMetadata[e.id],
	})
	b.owners[orderKey] = e.id
	return true
}

// busy reports whether another message has the turn of an ordering key.
func (g *group) busy(b *batch, orderKey, id string, halts bool) bool {
	owner, known := b.owners[orderKey]
	if !known {
		if owner = g.turns[orderKey]; owner != "" && owner != id && !g.hasTurn(owner, halts) {
			g.passTurn(orderKey, owner)
			owner = g.turns[orderKey]
		}
		b.owners[orderKey] = owner
	}
	return owner != "" && owner != id
}

// next returns the receipt of the claim after the last one.
func next(last Receipt, retried, lost bool) Receipt {
	if !retried && !lost {
		return firstClaim
	}
	if last == firstClaim && !lost { // it was released unseen
		return aheadAgain
	}
	return Receipt{last.Token + 1, last.Deliveries, last.Unsure + 1}
}

// toDead makes a message dead that is in no set except unack.
func (p *Partition) toDead(g *group, id string, ms int64, reason string) {
	g.reasons[id] = reason
	g.dead.add(ms, id)
	g.unack.remove(id)
	if key := keyOf(id); p.keys[key] == id {
		delete(p.keys, key)
		p.lost[key] = id
	}
}

// replay answers a repeated request with the messages that the consumer holds, if they fit and have not been
// claimed or extended since. The others return to the queue unseen; once the leases are over, all do.
func (p *Partition) replay(g *group, now int64, r Request) Claims {
	last := g.claims[r.Consumer]
	claims := Claims{Now: nowMS(now), Deadline: last.deadline, Replayed: true, Ending: p.ending(now)}
	for _, b := range last.buried {
		if g.dead.has(b.ID) {
			claims.Buried = append(claims.Buried, b)
		}
	}
	over, stopped, size := last.deadline <= nowMS(now), false, 0
	for _, m := range last.messages {
		body, stored := p.messages[m.ID]
		if !stored || !g.current(m.ID, m.Receipt) || g.unack.scores[m.ID] != last.deadline {
			continue
		}
		m.Body, m.Metadata = body, g.nackMetadata[m.ID]
		bytes, due := len(m.Body)+len(m.Metadata), m.Due
		stopped = stopped || over || len(claims.Messages) == r.Limit || len(claims.Messages) > 0 && size+bytes > r.Bytes
		if !stopped {
			claims.Messages = append(claims.Messages, m)
			size += bytes
			continue
		}
		if over && bytes > r.Bytes { // the consumer could not fetch it
			due = nowMS(now)
		}
		returned := Release{Delivery{m.ID, m.Receipt}, due, 0}
		g.release(returned)
		claims.Returned = append(claims.Returned, returned)
	}
	if stopped {
		g.atLimit = 0
		p.wake(now, 0, r.Group)
	}
	last.ms, last.messages = nowMS(now), claims.Messages
	g.claims[r.Consumer] = last
	return claims
}

// wait returns how long until the next message can be due, in µs.
func (p *Partition) wait(g *group, now int64) int64 {
	first, found := int64(0), false
	for _, set := range []*zset{&p.scheduled, &g.queue, &g.unack} {
		if due, any := set.head(); any && (!found || due < first) {
			first, found = due, true
		}
	}
	if !found {
		return -1
	}
	return max(0, first*1000-now)
}
