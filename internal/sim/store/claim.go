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
	Bytes           int // stop at this many bytes of messages
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
}

// claimed is the record of a consumer.
type claimed struct {
	number   int64
	ms       int64
	messages []Claimed
	buried   []Buried
}

// Claim leases due messages. A repeated request gets the same messages, if they are still
// held. ok is false when the group is not registered.
func (p *Partition) Claim(now int64, r Request) (claims Claims, ok bool) {
	g := p.groups[r.Group]
	if g == nil {
		return Claims{}, false
	}
	deadline := ceilMS(now) + r.Lease
	last, known := g.claims[r.Consumer]
	switch {
	case known && last.number == r.Number:
		return p.replay(g, last, deadline), true
	case known && last.number > r.Number:
		return Claims{Deadline: deadline, Wait: -1, Replayed: true}, true
	}
	reach := r.Limit
	if r.MaxDeliveries > 0 && (g.beginsSpent(&g.unack, nowMS(now), r) || g.beginsSpent(&g.queue, nowMS(now), r)) {
		reach = max(reach, maxSpent)
	}
	expired := g.unack.upTo(nowMS(now), reach)
	source, fresh := p.due(g, nowMS(now), reach-len(expired))
	claims = Claims{Deadline: deadline}
	taken, size := 0, 0
	for i, e := range append(expired, fresh...) {
		lost := i < len(expired)
		fits := p.give(g, &claims, e, lost, r, &size)
		if !fits {
			break
		}
		taken++
		if !lost {
			source.remove(e.id)
		}
	}
	all := taken == len(expired)+len(fresh)
	g.claims[r.Consumer] = claimed{r.Number, nowMS(now), claims.Messages, claims.Buried}
	if all {
		claims.Wait = p.wait(g, now)
	}
	busy := known && nowMS(now)-last.ms < busyMS
	if all && claims.Wait != 0 && !busy && len(g.claims) > 1 {
		p.notify(Notice{Wait: claims.Wait, Group: r.Group, Looked: true, Found: taken, Consumer: r.Consumer})
	}
	return claims, true
}

// beginsSpent tells whether the first message that is due has to be buried.
func (g *group) beginsSpent(z *zset, now int64, r Request) bool {
	for _, e := range z.upTo(now, 1) {
		return g.attempts[e.id].spent(r.MaxDeliveries)
	}
	return false
}

// due lists what the group may get besides ended leases, and the set that has it.
func (p *Partition) due(g *group, now int64, room int) (*zset, []entry) {
	due := p.scheduled.upTo(now, room)
	if len(due) > 0 {
		if retry, any := g.queue.head(); len(p.groups) == 1 && (!any || retry > now) {
			return &p.scheduled, due
		}
		p.fanOut(due[:min(len(due), max(1, fanOutEntries/len(p.groups)))])
	}
	return &g.queue, g.queue.upTo(now, room)
}

// fanOut gives scheduled messages to the queues of all groups.
func (p *Partition) fanOut(due []entry) {
	names := p.Groups()
	for _, e := range due {
		if len(names) > 1 {
			p.refs[e.id] = names
		}
		for _, name := range names {
			p.groups[name].queue.add(e.score, e.id)
		}
		p.scheduled.remove(e.id)
	}
}

// give leases a message or buries it; false if the claim must end before it.
func (p *Partition) give(g *group, claims *Claims, e entry, lost bool, r Request, size *int) bool {
	body, stored := p.messages[e.id]
	last, retried := g.attempts[e.id]
	if !retried && lost {
		last = firstClaim
	}
	switch {
	case !stored:
		p.bury(g, claims, e.id, claims.Deadline-r.Lease, "message body is missing")
		return true
	case last.spent(r.MaxDeliveries):
		p.bury(g, claims, e.id, claims.Deadline-r.Lease, last.reason(r.MaxDeliveries))
		return true
	case len(claims.Messages) == r.Limit:
		return false
	case (retried || lost) && next(last, retried, lost) != aheadAgain && len(claims.Messages) >= r.Free:
		claims.NeedsWorker = true
		return false
	case len(claims.Messages) > 0 && *size+len(body) > r.Bytes:
		return false
	}
	token := next(last, retried, lost)
	if retried || lost {
		g.attempts[e.id] = token
	}
	g.unack.add(claims.Deadline, e.id)
	*size += len(body)
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
	p.free(id)
}

// replay answers a request that was sent again.
func (p *Partition) replay(g *group, last claimed, deadline int64) Claims {
	claims := Claims{Deadline: deadline, Buried: last.buried, Replayed: true}
	for _, m := range last.messages {
		if body, stored := p.messages[m.ID]; stored && g.current(m.ID, m.Token) {
			m.Body, m.Metadata = body, g.changed[m.ID]
			g.unack.add(deadline, m.ID)
			claims.Messages = append(claims.Messages, m)
		}
	}
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

// current reports whether a delivery still holds its message.
func (g *group) current(id string, token Token) bool {
	if !g.unack.has(id) {
		return false
	}
	last, known := g.attempts[id]
	if !known {
		last = firstClaim
	}
	return last.Fence == token.Fence
}
