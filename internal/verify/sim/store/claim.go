package store

// fanOutEntries is how many entries one claim gives to the queues of the groups at most.
const fanOutEntries = 4000

// maxSpent is how many messages a claim may bury if its limit is lower.
const maxSpent = 100

// busyMS is how soon after its last claim a consumer claims without notifying the others.
const busyMS = 2

// Request asks for due messages.
type Request struct {
	Group, Consumer string
	Number          int64
	Limit           int // messages, 1 to 1000
	Free            int // how many of them are for free workers
	Lease           int64
	MaxDeliveries   int
	Bytes           int   // stop at this many bytes of messages
	Alive           int64 // for how many ms the consumer counts as alive; 0: it says nothing
}

// Claimed is a leased message.
type Claimed struct {
	ID       string
	Token    Token
	Due      int64 // ms
	Body     []byte
	Metadata []byte // as a nack set it
}

// Buried is a message that has become a dead letter.
type Buried struct{ ID, Reason string }

// Claims is the answer to a Request.
type Claims struct {
	Deadline    int64 // of the leases, ms
	Messages    []Claimed
	Buried      []Buried
	Wait        int64 // µs until more is due; negative: nothing is scheduled
	NeedsWorker bool  // the next message is only for a free worker
	Replayed    bool
	Ending      bool // groups may end soon
}

// claimed is the record of a consumer.
type claimed struct {
	number   int64
	ms       int64
	deadline int64
	messages []Claimed
	buried   []Buried
}

// Claim leases due messages. A repeated request gets the same messages, if they are still
// held. ok is false when the group is not registered.
func (p *Partition) Claim(now int64, r Request) (claims Claims, ok bool) {
	g := p.groups[r.Group]
	if g == nil || !g.registered {
		return Claims{}, false
	}
	deadline := ceilMS(now) + r.Lease
	last, known := g.claims[r.Consumer]
	switch {
	case known && last.number == r.Number:
		return p.replay(g, now, r.Consumer, deadline), true
	case known && last.number > r.Number:
		return Claims{Deadline: deadline, Wait: -1, Replayed: true, Ending: p.ending(now)}, true
	}
	b := p.boundsOf(g, r, now)
	b.idle = known && p.idle(g, r, now, last)
	claims = Claims{Deadline: deadline, Ending: p.ending(now)}
	all := p.take(g, &claims, &r, b, now)
	p.spend(r.Group, &b, len(claims.Messages))
	g.claims[r.Consumer] = claimed{r.Number, nowMS(now), deadline, claims.Messages, claims.Buried}
	if len(claims.Buried) > 0 {
		p.makeRoom(g, r.Group)
	}
	p.answer(g, &claims, r, b, now, all)
	if !known || last.ms/1000 != nowMS(now)/1000 {
		g.noteAlive(now, r.Consumer, r.Alive)
	}
	busy := known && nowMS(now)-last.ms < busyMS
	if !claims.NeedsWorker && claims.Wait != 0 && !busy && len(g.claims) > 1 {
		found := len(claims.Messages) + len(claims.Buried)
		p.notify(Notice{Wait: claims.Wait, Group: r.Group, Looked: true, Found: found, Consumer: r.Consumer})
	}
	return claims, true
}

// idle tells whether lib_idle answers a claim: there is nothing to find, and nothing unusual to do.
// It does not look for pauses.
func (p *Partition) idle(g *group, r Request, now int64, last claimed) bool {
	_, seen := g.consumers[r.Consumer]
	return p.wait(g, now) != 0 && !p.ending(now) && len(g.claims) == 1 && (seen || r.Alive == 0) &&
		last.ms/hourMS == nowMS(now)/hourMS
}

// take leases and buries messages within the bounds. It reports whether it has taken all
// that it has looked at.
func (p *Partition) take(g *group, claims *Claims, r *Request, b bounds, now int64) (all bool) {
	r.Limit = b.limit
	reach := r.Limit
	further := r.Limit > 0 && r.MaxDeliveries > 0 &&
		(g.beginsSpent(&g.unack, nowMS(now), *r) || g.beginsSpent(&g.queue, nowMS(now), *r))
	if further {
		reach = max(reach, maxSpent)
	}
	expired := g.unack.upTo(nowMS(now), reach)
	r.Limit = min(r.Limit, len(expired)+max(0, b.room)) // those of lost leases are in unack already
	if !further {
		reach = r.Limit
	}
	source, fresh := p.due(g, nowMS(now), reach-len(expired))
	size := 0
	for i, e := range append(expired, fresh...) {
		lost := i < len(expired)
		if i == len(expired) {
			r.Limit = min(r.Limit, max(len(claims.Messages), len(expired)+b.room))
		}
		if !p.give(g, claims, e, lost, *r, now, &size) {
			return false
		}
		if !lost {
			source.remove(e.id)
		}
	}
	return true
}

// answer completes the answer to a claim: when to claim again. all says that the claim has
// not stopped before a message.
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

// beginsSpent tells whether the first message that is due has to be buried.
func (g *group) beginsSpent(z *zset, now int64, r Request) bool {
	for _, e := range z.upTo(now, 1) {
		return g.attempts[e.id].spent(r.MaxDeliveries)
	}
	return false
}

// give leases a message or buries it; false if the claim must end before it.
func (p *Partition) give(g *group, claims *Claims, e entry, lost bool, r Request, now int64, size *int) bool {
	body, stored := p.messages[e.id]
	bytes := len(body) + len(g.changed[e.id])
	last, retried := g.attempts[e.id]
	if !retried && lost {
		last = firstClaim
	}
	switch {
	case last.spent(r.MaxDeliveries):
		p.bury(g, claims, e.id, nowMS(now), last.reason(r.MaxDeliveries))
		return true
	case !stored:
		p.bury(g, claims, e.id, nowMS(now), "message body is missing")
		return true
	case len(claims.Messages) == r.Limit:
		return false
	case (retried || lost) && next(last, retried, lost) != aheadAgain && len(claims.Messages) >= r.Free:
		claims.NeedsWorker = true
		return false
	case len(claims.Messages) > 0 && *size+bytes > r.Bytes:
		return false
	}
	token := next(last, retried, lost)
	if retried || lost {
		g.attempts[e.id] = token
	}
	g.unack.add(claims.Deadline, e.id)
	*size += bytes
	claims.Messages = append(claims.Messages, Claimed{e.id, token, e.score, body, g.changed[e.id]})
	return true
}

// next is the token of a claim after the last one.
func next(last Token, retried, lost bool) Token {
	if !retried && !lost {
		return firstClaim
	}
	if last == firstClaim && !lost { // it was given back unseen
		return aheadAgain
	}
	return Token{last.Fence + 1, last.Deliveries, last.Unsure + 1}
}

func (p *Partition) bury(g *group, claims *Claims, id string, ms int64, reason string) {
	p.toDead(g, id, ms, reason)
	claims.Buried = append(claims.Buried, Buried{id, reason})
}

// toDead makes a dead letter of a message that is in no other set than unack.
func (p *Partition) toDead(g *group, id string, ms int64, reason string) {
	g.reasons[id] = reason
	g.dead.add(ms, id)
	g.unack.remove(id)
	if key := keyOf(id); p.keys[key] == id {
		delete(p.keys, key)
		p.lost[key] = id
	}
}

// replay answers a request that was sent again: with what the consumer holds that nobody has
// claimed or extended since.
func (p *Partition) replay(g *group, now int64, consumer string, deadline int64) Claims {
	last := g.claims[consumer]
	claims := Claims{Deadline: deadline, Replayed: true, Ending: p.ending(now)}
	for _, b := range last.buried {
		if g.dead.has(b.ID) {
			claims.Buried = append(claims.Buried, b)
		}
	}
	for _, m := range last.messages {
		body, stored := p.messages[m.ID]
		if stored && g.current(m.ID, m.Token) && g.unack.scores[m.ID] == last.deadline {
			m.Body, m.Metadata = body, g.changed[m.ID]
			g.unack.add(deadline, m.ID)
			claims.Messages = append(claims.Messages, m)
		}
	}
	last.ms, last.deadline = nowMS(now), deadline
	g.claims[consumer] = last
	return claims
}

// wait is how long until more can be due, in µs.
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
