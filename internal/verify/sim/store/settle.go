package store

import "slices"

// Delivery names one delivery of a message.
type Delivery struct {
	ID      string
	Receipt Receipt
}

// Nack is a failed delivery.
type Nack struct {
	Delivery
	Delay    int64  // ms
	Metadata []byte // empty keeps the metadata as it is
	Deferred bool   // the delivery does not count
	Reason   string // if not empty, the message is buried for it
	Error    string // appended to the reason after the last delivery
}

// Release is a message that is released before a handler has seen it.
type Release struct {
	Delivery
	Due int64 // ms
	Age int64 // ms since it was claimed, at least
}

// Burial is a message that can never be handled.
type Burial struct {
	Delivery
	Reason string
}

// Held is a delivery that a consumer holds.
type Held struct {
	Delivery
	HandedOut bool // to a handler
}

// Ack removes handled messages for a group, as a relay does, too. It returns the ids whose delivery is not
// current, and whether the group was at its limit, or an ordering key has a next message.
func (p *Partition) Ack(name string, deliveries []Delivery) (stale []string, room bool) {
	g := p.groups[name]
	var ended []string // an id that is given twice is acked twice
	for _, d := range deliveries {
		if g != nil && g.current(d.ID, d.Receipt) {
			ended = append(ended, d.ID)
		} else {
			stale = append(stale, d.ID)
		}
	}
	if len(ended) == 0 {
		return stale, false
	}
	for _, id := range ended {
		g.unack.remove(id)
		p.finish(g, name, id)
	}
	passed := p.passTurns(g, name, ended)
	return stale, p.releaseCapacity(g, name) || passed
}

// finish removes a message for one group; the last group removes the body.
func (p *Partition) finish(g *group, name, id string) {
	delete(g.attempts, id)
	delete(g.nackMetadata, id)
	left := slices.DeleteFunc(slices.Clone(p.refs[id]), func(other string) bool { return other == name })
	if len(left) > 0 {
		p.refs[id] = left
		return
	}
	delete(p.refs, id)
	delete(p.messages, id)
	p.free(id)
}

// Nack makes messages due again after a delay, or buries them.
func (p *Partition) Nack(now int64, name string, maxDeliveries int, nacks []Nack) (stale []string, buried []Buried) {
	g := p.groups[name]
	if g == nil {
		g = newGroup()
	}
	earliest, waiting := g.queue.head()
	first := int64(-1)
	var ended []string
	for _, n := range nacks {
		if !g.current(n.ID, n.Receipt) {
			if reason, dead := g.buriedBy(n); dead {
				buried = append(buried, Buried{n.ID, reason})
			} else {
				stale = append(stale, n.ID)
			}
			continue
		}
		receipt, reason := n.outcome(maxDeliveries)
		g.attempts[n.ID] = receipt
		if len(n.Metadata) > 0 {
			g.nackMetadata[n.ID] = n.Metadata
		}
		if reason != "" {
			p.toDead(g, n.ID, nowMS(now), reason)
			buried = append(buried, Buried{n.ID, reason})
			ended = append(ended, n.ID)
			continue
		}
		due := Due(now, n.Delay)
		if first < 0 || due < first {
			first = due
		}
		g.queue.add(due, n.ID)
		g.unack.remove(n.ID)
	}
	p.releaseCapacity(g, name)
	p.endTurns(g, name, ended)
	if first >= 0 && (!waiting || first < earliest) {
		p.wake(now, first, name)
	}
	return stale, buried
}

// outcome returns the receipt after a nack, and why the message is buried, if it is.
func (n Nack) outcome(maxDeliveries int) (receipt Receipt, reason string) {
	receipt = n.Receipt.confirmed()
	switch {
	case n.Reason != "":
		return receipt, n.Reason
	case n.Deferred:
		return n.Receipt.unseen(), ""
	case !receipt.spent(maxDeliveries):
		return receipt, ""
	case n.Error != "":
		return receipt, receipt.reason(maxDeliveries) + ": " + n.Error
	}
	return receipt, receipt.reason(maxDeliveries)
}

// buriedBy returns why an earlier attempt of a nack has buried its message, if it has: its reply may be lost.
func (g *group) buriedBy(n Nack) (reason string, is bool) {
	reason, dead := g.whyDead(n.ID)
	deferred := n.Deferred && n.Reason == ""
	return reason, dead && !deferred && g.attempts[n.ID] == n.Receipt.confirmed() && (n.Reason == "" || n.Reason == reason)
}

// Extend renews leases, and counts the deliveries that handlers have seen.
func (p *Partition) Extend(now int64, name string, lease int64, held []Held) (stale []string) {
	g := p.groups[name]
	for _, h := range held {
		if g == nil || !g.current(h.ID, h.Receipt) {
			stale = append(stale, h.ID)
			continue
		}
		g.unack.add(ceilMS(now)+lease, h.ID)
		if h.HandedOut && g.entry(h.ID) == h.Receipt {
			g.attempts[h.ID] = h.Receipt.confirmed()
		}
	}
	return stale
}

// Release returns messages to the queue with their old due times.
func (p *Partition) Release(now int64, name string, releases []Release) (stale []string) {
	g, unused := p.groups[name], 0.0
	for _, r := range releases {
		if g == nil || !g.current(r.ID, r.Receipt) {
			stale = append(stale, r.ID)
			continue
		}
		g.release(r)
		unused += max(0, p.shares[name].interval-float64(r.Age*1000))
	}
	p.refund(name, unused)
	if len(stale) < len(releases) {
		g.atLimit = 0
		p.wake(now, 0, name)
	}
	return stale
}

// release returns a message that no handler has seen to the queue.
func (g *group) release(r Release) {
	g.attempts[r.ID] = r.Receipt.unseen()
	g.queue.add(r.Due, r.ID)
	g.unack.remove(r.ID)
}

// Bury makes messages dead messages. It returns those whose delivery is not current, unless this
// delivery was buried before for the same reason.
func (p *Partition) Bury(now int64, name string, burials []Burial) (stale []string) {
	g := p.groups[name]
	if g == nil {
		g = newGroup()
	}
	var ended []string
	for _, b := range burials {
		if !g.current(b.ID, b.Receipt) {
			if reason, dead := g.whyDead(b.ID); !dead || reason != b.Reason || g.entry(b.ID).Token != b.Receipt.Token {
				stale = append(stale, b.ID)
			}
			continue
		}
		p.toDead(g, b.ID, nowMS(now), b.Reason)
		ended = append(ended, b.ID)
	}
	p.endTurns(g, name, ended)
	p.releaseCapacity(g, name)
	return stale
}
