package sim

import (
	"math"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// rules are the settings of a group in a partition, and how much of its limits the group has used.
// They are recorded outside of the store, to check it. They are guarded by World.mu.
type rules struct {
	pauses    map[string]time.Time // the group, or "" for all groups -> end of the pause; zero: no end
	retired   bool
	follows   bool      // added after a retirement: retired as long as the group is retired in the first partition
	changedAt time.Time // when a call last changed the rules
	closed    time.Time // when the group was paused or retired; zero: it is not
	eased     time.Time // when a call last ended a pause, a limit or a retirement
	forgotten time.Time // when all messages and claims of the retired group were last freed
	untold    time.Time // when the rules last changed without a notification: restored, or shares of limits changed

	limits   store.Limits // of all partitions together
	max      int          // messages in delivery; 0: any number
	interval float64      // µs from one claimed message to the next; 0: any rate
	burst    int

	held   int       // messages in delivery
	roomAt time.Time // when there was last capacity again
	back   float64   // when the whole burst is back, µs
	tokens float64   // what may be claimed now if nothing was claimed before the limits were set
	filled float64   // when tokens were counted, µs
}

// at returns the rules of a group in a partition.
func (g *group) at(partition int) *rules {
	r := g.rules[partition]
	if r == nil {
		r = &rules{pauses: map[string]time.Time{}}
		g.rules[partition] = r
	}
	return r
}

// paused reports whether a pause lasts, and when the last pause that is over has ended by itself.
func (r *rules) paused(now time.Time) (lasts bool, ended time.Time) {
	for _, until := range r.pauses {
		if until.IsZero() || now.Before(until) {
			lasts = true
			continue
		}
		ended = latest(ended, until)
	}
	return lasts, ended
}

// open returns since when the group could have claimed a message; ok is false if it may not now. A
// message whose lease has expired needs no more capacity.
func (r *rules) open(now time.Time, lost bool) (since time.Time, ok bool) {
	lasts, ended := r.paused(now)
	if lasts || r.retired {
		return since, false
	}
	since = latest(r.eased, ended)
	if !lost && r.max > 0 {
		if r.held >= r.max {
			return since, false
		}
		since = latest(since, r.roomAt)
	}
	if r.interval > 0 {
		token := time.UnixMicro(int64(math.Ceil(r.back - float64(r.burst-1)*r.interval)))
		if now.Before(token) {
			return since, false
		}
		since = latest(since, token)
	}
	return since, true
}

// change changes the rules. Claims that it permits are possible from now on.
func (r *rules) change(now time.Time, change func()) {
	since, before := r.open(now, false)
	if before {
		r.eased = latest(r.eased, since)
	}
	_, lost := r.open(now, true)
	change()
	r.changedAt = now
	_, after := r.open(now, false)
	if _, after2 := r.open(now, true); after && !before || after2 && !lost {
		r.eased = now
	}
	switch lasts, _ := r.paused(now); {
	case !lasts && !r.retired:
		r.closed = time.Time{}
	case r.closed.IsZero():
		r.closed = now
	}
}

// limit sets a partition's share of limits.
func (r *rules) limit(now time.Time, l store.Limits, partition, partitions int) {
	r.limits, r.max, r.interval, r.burst = l, part(l.MaxInFlight, partition, partitions), 0, 0
	if l.Messages == 0 {
		if l.MaxInFlight == 0 {
			r.back = 0
		}
		return
	}
	r.interval = float64(l.Per) * float64(partitions) / float64(l.Messages)
	r.burst = part(l.Burst, partition, partitions)
	r.tokens, r.filled = float64(r.burst), float64(now.UnixMicro())
}

// cap limits the time until the burst is back to what it takes now: earlier claims may have had a slower rate.
func (r *rules) cap(now time.Time) {
	if r.interval > 0 {
		r.back = min(r.back, float64(now.UnixMicro())+float64(r.burst)*r.interval)
	}
}

// part returns a partition's part of a number.
func part(number, partition, partitions int) int {
	var n int
	for i := range number {
		if i%partitions == partition {
			n++
		}
	}
	return max(n, min(number, 1))
}

// lease counts a message that was not in delivery. It reports whether the limits had capacity for it.
func (r *rules) lease() bool {
	r.held++
	return r.max == 0 || r.held <= r.max
}

// scarce reports whether limits leave too little for messages that are held ahead: less than four
// claims take.
func (r *rules) scarce(now time.Time, limit int) bool {
	room, tokens := math.Inf(1), math.Inf(1)
	if r.max > 0 {
		room = float64(r.max - r.held)
	}
	if r.cap(now); r.interval > 0 {
		us := float64(now.UnixMicro())
		tokens = math.Floor((us-max(us, r.back))/r.interval + float64(r.burst) + 1e-6)
	}
	return min(room, tokens) < float64(4*limit)
}

// settled counts a message that is no longer in delivery.
func (r *rules) settled(now time.Time) {
	if r.held--; r.held+1 == r.max {
		r.roomAt = now
	}
}

// claim counts claimed messages. It reports whether the rate allows them: in any time since
// the limits were set, at most the burst and what the rate adds in that time.
func (r *rules) claim(now time.Time, messages int) bool {
	if r.cap(now); r.interval == 0 || messages == 0 {
		return true
	}
	us := float64(now.UnixMicro())
	r.tokens = min(float64(r.burst), r.tokens+(us-r.filled)/r.interval) - float64(messages)
	r.filled = us
	r.back = math.Ceil(max(us, r.back) + float64(messages)*r.interval)
	return r.tokens > -0.001
}

// refund refunds a message that was claimed a while ago, and that no handler has seen.
func (r *rules) refund(age time.Duration) {
	if r.interval == 0 {
		return
	}
	unused := max(0, r.interval-float64(age.Microseconds()))
	r.tokens += unused / r.interval
	r.back -= unused
}

// adopt copies the rules of the first partition.
func (r *rules) adopt(now time.Time, first *rules, partition, partitions int) {
	r.change(now, func() {
		if r != first {
			clear(r.pauses)
			for who, until := range first.pauses {
				r.pauses[who] = until
			}
		}
		if first.limits != r.limits || r.limits != (store.Limits{}) {
			r.limit(now, first.limits, partition, partitions)
			r.untold = now
		}
	})
}
