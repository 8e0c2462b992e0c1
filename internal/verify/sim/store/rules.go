package store

import (
	"maps"
	"math"
)

// claimsAhead is the number of claims: messages are held ahead of free workers only if the group's
// limits allow this many claims of the requested size.
const claimsAhead = 4

// unbounded is more messages than a claim may take.
const unbounded = math.MaxInt32

// Limits are the limits of a group in all partitions together.
type Limits struct {
	MaxInFlight int   // messages in delivery; 0: any number
	Messages    int   // claimed in Per; 0: any number
	Per         int64 // µs
	Burst       int   // claimed at once when the group has been idle
	HaltsKeys   bool  // a dead message halts its ordering key
}

// share is a partition's part of Limits.
type share struct {
	most     int     // messages in unack; 0: any number
	interval float64 // µs from one claimed message to the next; 0: any rate
	burst    int
}

func (l Limits) share(partition, partitions int) share {
	s := share{most: part(l.MaxInFlight, partition, partitions)}
	if l.Messages > 0 {
		s.interval = math.Round(1e6*float64(l.Per)*float64(partitions)/float64(l.Messages)) / 1e6 // the scripts get six decimals
		s.burst = part(l.Burst, partition, partitions)
	}
	return s
}

// part returns a partition's part of a number, at least 1 unless the number is 0.
func part(number, partition, partitions int) int {
	n := number / partitions
	if partition < number%partitions {
		n++
	}
	return max(n, min(number, 1))
}

// Pause stops a group, or all groups if it is "", from claiming for some ms; 0: until Resume.
func (p *Partition) Pause(now int64, name string, lasts int64) {
	_, replaced := p.pauses[name]
	p.pauses[name] = 0
	if lasts > 0 {
		p.pauses[name] = ceilMS(now) + lasts
	}
	p.notify(Notice{Group: name, Paused: true})
	if replaced { // consumers have to read the new end of the pause
		p.wake(now, 0, name)
	}
}

// Resume ends the pause of a group, or of all groups if it is "".
func (p *Partition) Resume(now int64, name string) {
	if _, paused := p.pauses[name]; paused {
		delete(p.pauses, name)
		p.wake(now, 0, name)
	}
}

// Limit sets the limits of a group in a topic with this many partitions; zero Limits remove them.
func (p *Partition) Limit(now int64, name string, l Limits, partitions int) {
	s := l.share(p.number, partitions)
	if l == p.limits[name] && s == p.shares[name] {
		return
	}
	p.noteHalted(name)
	if l == (Limits{}) {
		p.unlimit(name)
	} else {
		p.limits[name], p.shares[name] = l, s
		p.cap(now, name)
	}
	p.wake(now, 0, name)
}

// cap limits the time until the burst is back to what it takes now: earlier claims may have had a slower rate.
func (p *Partition) cap(now int64, name string) {
	if s := p.shares[name]; s.interval > 0 {
		p.rates[name] = min(p.rates[name], int64(math.Ceil(float64(now)+float64(s.burst)*s.interval)))
	}
}

func (p *Partition) unlimit(name string) {
	p.noteHalted(name)
	delete(p.limits, name)
	delete(p.shares, name)
	delete(p.rates, name)
}

// adopt copies the settings of the first partition, and sets the share of its limits.
func (p *Partition) adopt(first *Partition, partitions int) {
	p.pauses, p.limits = maps.Clone(first.pauses), maps.Clone(first.limits)
	p.shares = map[string]share{}
	for name, l := range p.limits {
		p.shares[name] = l.share(p.number, partitions)
	}
	for _, name := range first.Groups() {
		p.Register(name)
	}
}

// refund refunds some µs of the rate that the claims of a group have used.
func (p *Partition) refund(name string, us float64) {
	if us > 0 && p.rates[name] > 0 {
		p.rates[name] = int64(math.Ceil(float64(p.rates[name]) - us))
	}
}

// bounds are the limits of a claim.
type bounds struct {
	paused  bool
	idle    bool  // lib_idle answers the claim
	ends    int64 // of the pause, ms; 0: no end
	limited bool
	share   share
	back    float64 // when the whole burst is back, µs
	late    bool    // back was later than possible, and was corrected
	room    int     // capacity for messages that are not in delivery; below 0 if there are too many
	scarce  bool    // no messages may be held ahead
	limit   int     // messages
}

func (p *Partition) boundsOf(g *group, r Request, now int64) bounds {
	b := bounds{room: unbounded, limit: r.Limit}
	for _, name := range []string{"", r.Group} {
		ends, paused := p.pauses[name]
		if paused && (ends == 0 || ends*1000 > now) {
			if b.paused && (b.ends == 0 || ends != 0 && ends < b.ends) {
				continue
			}
			b.paused, b.ends = true, ends
		}
	}
	b.share, b.limited = p.shares[r.Group]
	if b.paused {
		b.limit = 0
	} else if b.limited {
		p.limit(&b, g, r, now)
	}
	return b
}

// limit computes what limits leave for a claim.
func (p *Partition) limit(b *bounds, g *group, r Request, now int64) {
	receipts := unbounded
	if b.share.most > 0 {
		b.room = b.share.most - len(g.unack.list)
	}
	if b.share.interval > 0 {
		latest := float64(now) + float64(b.share.burst)*b.share.interval // later only if the clock was set back
		b.late = float64(p.rates[r.Group]) > latest
		b.back = min(max(float64(now), float64(p.rates[r.Group])), latest)
		receipts = max(0, int((float64(now)-b.back)/b.share.interval+float64(b.share.burst)+1e-6))
	}
	if b.scarce = min(b.room, receipts) < claimsAhead*r.Limit; b.scarce {
		b.limit = min(r.Limit, receipts, r.Free)
	}
}

// spend charges claimed messages to the rate.
func (p *Partition) spend(name string, b *bounds, count int) {
	if b.limited && b.share.interval > 0 && (count > 0 || b.late) {
		b.back += float64(count) * b.share.interval
		p.rates[name] = int64(math.Ceil(b.back))
	}
}

// pauseLasts returns for how many µs the pause lasts; negative: it has no end.
func (b bounds) pauseLasts(now int64) int64 {
	if b.ends == 0 {
		return -1
	}
	return b.ends*1000 - now
}

// heldBack returns for how many µs limits keep the group from due messages. A call that releases
// capacity earlier wakes it.
func (g *group) heldBack(b bounds, now int64) int64 {
	wait := 0.0
	if b.share.most > 0 && len(g.unack.list) >= b.share.most {
		g.atLimit = b.share.most
		first, _ := g.unack.head()
		wait = float64(first*1000 - now)
	}
	if b.share.interval > 0 {
		wait = max(wait, b.back-float64(b.share.burst-1)*b.share.interval-float64(now))
	}
	return int64(max(0, math.Ceil(wait)))
}

// releaseCapacity wakes a group that waits for capacity in unack if there is some now, and reports whether
// there is.
func (p *Partition) releaseCapacity(g *group, name string) bool {
	if g.atLimit == 0 || len(g.unack.list) >= g.atLimit {
		return false
	}
	g.atLimit = 0
	p.wake(0, 0, name)
	return true
}
