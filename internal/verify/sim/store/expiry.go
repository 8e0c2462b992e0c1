package store

const (
	nearMS   = 10_000 // a group is checked this long before its end
	noticeMS = 9_000  // notice is given this long before the end
	lateMS   = 15_000 // a check that comes later after the first notice gives a second one
	hourMS   = 3_600_000
	lookMS   = 12 * hourMS // longest time between checks
)

// expiry is when a group ends, in ms.
type expiry struct {
	lasts   int64 // without a live consumer
	ends    int64 // at the earliest
	noticed int64 // when the group was given notice of its end; 0: it was not
	look    int64 // when to check
}

// presence is what a consumer reports about itself, in ms.
type presence struct{ until, seen int64 }

// RegisterFor registers a group that ends after some ms without a live consumer.
func (p *Partition) RegisterFor(now int64, name string, lasts int64) (ok bool) {
	if ok = p.Register(name); ok {
		p.expire(now, name, lasts, nowMS(now)+lasts, 0)
	}
	return ok
}

// expire sets when a group expires.
func (p *Partition) expire(now int64, name string, lasts, ends, noticed int64) {
	look := min(ends, nowMS(now)+lookMS)
	if noticed > 0 {
		look = max(ends, noticed+noticeMS)
	}
	p.expiry[name] = expiry{lasts, ends, noticed, look}
}

// ending reports whether groups may end soon.
func (p *Partition) ending(now int64) bool {
	for _, e := range p.expiry {
		if e.look <= nowMS(now)+nearMS {
			return true
		}
	}
	return false
}

// noteAlive records that a consumer counts as alive for some ms. A new consumer removes those that
// are no longer alive.
func (g *group) noteAlive(now int64, consumer string, alive int64) {
	if alive == 0 {
		return
	}
	_, known := g.consumers[consumer]
	g.consumers[consumer] = presence{nowMS(now) + alive, nowMS(now)}
	for other, c := range g.consumers {
		if !known && c.until <= nowMS(now) {
			delete(g.consumers, other)
		}
	}
}

// Heartbeat records that a consumer without messages is alive for some ms.
func (p *Partition) Heartbeat(now int64, name, consumer string, alive int64) {
	if p.Registered(name) {
		p.groups[name].noteAlive(now, consumer, alive)
	}
}

// Alive reports whether a consumer of a group counts as alive.
func (p *Partition) Alive(now int64, name string) bool {
	if g := p.groups[name]; g != nil {
		for _, c := range g.consumers {
			if c.until > nowMS(now) {
				return true
			}
		}
	}
	return false
}

// Leave removes a consumer that has ended. If its group expires, its lifetime starts again.
func (p *Partition) Leave(now int64, name, consumer string) {
	g := p.groups[name]
	if g == nil {
		return
	}
	_, known := g.consumers[consumer]
	delete(g.consumers, consumer)
	delete(g.claims, consumer)
	if e, expires := p.expiry[name]; known && expires && p.tombstones[name] == "" {
		p.expire(now, name, e.lasts, max(e.ends, nowMS(now)+e.lasts), 0)
	}
}

// Expire ends a group if it has had no live consumer for its lifetime, was given notice shortly before, or twice, and
// how is "end". It returns alive, noticed, expired or gone.
func (p *Partition) Expire(now int64, name, how string) string {
	e, expires := p.expiry[name]
	switch {
	case p.tombstones[name] == Expired:
		return "expired"
	case p.tombstones[name] != "" || !expires || !p.Registered(name):
		delete(p.expiry, name)
		return "gone"
	}
	latest, slow := e.ends, e.lasts > noticeMS
	for _, c := range p.groups[name].consumers {
		latest = max(latest, c.until, c.seen+e.lasts)
		slow = slow || c.until-c.seen > noticeMS
	}
	if latest > e.ends {
		e.noticed = 0
	}
	ms := nowMS(now)
	if e.noticed > 0 && ms > e.noticed+lateMS && latest < e.noticed+nearMS {
		latest, e.noticed = ms+nearMS, 0
	}
	switch {
	case latest > ms+nearMS:
		p.expire(now, name, e.lasts, latest, 0)
		return "alive"
	case e.noticed == 0:
		p.expire(now, name, e.lasts, latest, ms)
		if slow {
			p.wake(now, 0, name)
		}
		return "noticed"
	case ms < max(latest, e.noticed+noticeMS):
		p.expire(now, name, e.lasts, latest, e.noticed)
		return "noticed"
	case how != "end":
		return "noticed"
	}
	p.remove(name, Expired)
	return "expired"
}
