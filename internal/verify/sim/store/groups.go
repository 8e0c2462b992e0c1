package store

import (
	"maps"
	"math"
	"slices"
)

// group is the data of one consumer group in a partition.
type group struct {
	registered         bool
	atLimit            int // the limit of a group that waits until fewer are in unack; 0: it does not wait
	queue, unack, dead zset
	attempts           map[string]Receipt
	claims             map[string]claimed
	reasons            map[string]string
	nackMetadata       map[string][]byte
	orphans            map[string]bool // messages that were cancelled while the group was retired
	consumers          map[string]presence
	turns              map[string]string  // ordering key -> the message whose turn it is
	blocked            map[string][]entry // ordering key -> due times and ids, in their order
	halted             bool               // the group no longer halts keys, but dead messages may have turns until its next claim
}

// Tombstone is the reason why a group was removed.
type Tombstone string

// The tombstones. An expired group may start again once all its messages are freed.
const (
	Retired Tombstone = "retired"
	Expired Tombstone = "expired"
)

func newGroup() *group {
	return &group{
		attempts:     map[string]Receipt{},
		claims:       map[string]claimed{},
		reasons:      map[string]string{},
		nackMetadata: map[string][]byte{},
		orphans:      map[string]bool{},
		consumers:    map[string]presence{},
		turns:        map[string]string{},
		blocked:      map[string][]entry{},
	}
}

// Register adds a group, which gets the messages that become due from now on, and does not expire.
// ok is false if the group is retired. If it has expired, its messages are freed first.
func (p *Partition) Register(name string) (ok bool) {
	for p.tombstones[name] == Expired {
		_, _, _ = p.Forget(name, math.MaxInt)
	}
	if p.tombstones[name] == Retired {
		return false
	}
	delete(p.expiry, name)
	if p.groups[name] == nil {
		p.groups[name] = newGroup()
	}
	p.groups[name].registered = true
	return true
}

// Registered reports whether a group is registered.
func (p *Partition) Registered(name string) bool {
	g := p.groups[name]
	return g != nil && g.registered
}

// Groups returns the names of the registered groups.
func (p *Partition) Groups() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(p.groups)) {
		if p.groups[name].registered {
			names = append(names, name)
		}
	}
	return names
}

// Retire removes a group, whether it has consumers or not. It cannot be registered until Restore.
func (p *Partition) Retire(name string) { p.remove(name, Retired) }

// End removes a group whose only subscriber has ended. It may start again.
func (p *Partition) End(name string) {
	if p.tombstones[name] == "" {
		p.remove(name, Expired)
	}
}

func (p *Partition) remove(name string, why Tombstone) {
	p.tombstones[name] = why
	if g := p.groups[name]; g != nil {
		g.registered = false
	}
}

// Tombstone returns why a group was removed; "" if it was not.
func (p *Partition) Tombstone(name string) Tombstone { return p.tombstones[name] }

// Forget frees up to limit messages of a removed group. It returns them, and whether none is left;
// ok is false if the group was not removed.
func (p *Partition) Forget(name string, limit int) (freed []string, done, ok bool) {
	if p.tombstones[name] == "" {
		return nil, false, false
	}
	g := p.groups[name]
	if g == nil {
		g = newGroup()
	}
	for _, set := range []*zset{&g.queue, &g.unack, &g.dead} {
		if len(set.list) == 0 {
			continue
		}
		for _, e := range slices.Clone(set.list[:min(limit, len(set.list))]) {
			set.remove(e.id)
			delete(g.reasons, e.id)
			p.finish(g, name, e.id)
			freed = append(freed, e.id)
		}
		return freed, false, true
	}
	delete(p.groups, name)
	delete(p.pauses, name)
	delete(p.expiry, name)
	if p.tombstones[name] == Expired {
		delete(p.tombstones, name)
	}
	p.unlimit(name)
	return nil, true, true
}

// Restore lets a retired group start again with its next Register. ok is false if Forget has not
// freed all its messages.
func (p *Partition) Restore(name string) (ok bool) {
	if p.tombstones[name] != Retired {
		return true
	}
	if p.groups[name] != nil {
		return false
	}
	delete(p.tombstones, name)
	p.wake(0, 0, name)
	return true
}

// due lists the messages that the group may get, except those with expired leases.
func (p *Partition) due(g *group, now int64, room int) []entry {
	due := p.scheduled.upTo(now, room)
	if names := p.Groups(); len(due) > 0 && len(names) > 1 {
		p.fanOut(names, due[:min(len(due), max(1, fanOutEntries/len(names)))])
		due = nil
	}
	due = append(due, g.queue.upTo(now, room)...)
	slices.SortFunc(due, compare)
	return due[:min(len(due), room)]
}

// fanOut gives scheduled messages to the queues of all groups.
func (p *Partition) fanOut(names []string, due []entry) {
	for _, e := range due {
		p.refs[e.id] = names
		for _, name := range names {
			p.groups[name].queue.add(e.score, e.id)
		}
		p.scheduled.remove(e.id)
	}
}

// entry returns the deliveries of a message that was claimed.
func (g *group) entry(id string) Receipt {
	if last, known := g.attempts[id]; known {
		return last
	}
	return firstClaim
}

// current reports whether a delivery is current.
func (g *group) current(id string, receipt Receipt) bool {
	return g.unack.has(id) && g.entry(id).Token == receipt.Token
}

// whyDead returns why a message is dead, if it is.
func (g *group) whyDead(id string) (reason string, dead bool) {
	if g == nil || !g.dead.has(id) {
		return "", false
	}
	return g.reasons[id], true
}
