package whole

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Plan is what happens in a run.
type Plan struct {
	Profile  string
	Duration time.Duration // until faults, publishing and churn end
	Trip     time.Duration // between a process and Redis, one way
	Groups   map[string]int
	MaxLate  time.Duration // that a due message waits while an idle consumer can reach Redis
	Strict   bool          // no fault can make a message come twice

	// MostRequests and MostBytes are what a message may cost for each group: requests that are sent,
	// and bytes in them; 0: any number.
	MostRequests, MostBytes int
	Partitions              int

	Publishers []PublisherPlan
	Visitors   VisitorPlan
	Faults     FaultPlan
	Operator   OperatorPlan
}

// PublisherPlan is what a publisher does.
type PublisherPlan struct {
	Gap        time.Duration // from one call to the next, on average
	MostDelay  time.Duration
	Immediate  float64       // the share of messages without a delay
	Keyed      float64       // the share of messages with a key
	Ordered    int           // how many ordering keys there are; 0: messages have none
	Window     time.Duration // DeduplicationWindow
	Changes    float64       // the share of keyed messages that are cancelled or rescheduled
	Failing    float64       // the share of messages that fail until they are dead messages
	Timeout    time.Duration // of the message's context; 0: none
	Limit      time.Duration // PublishTimeout; 0: the default
	Async      float64       // the share of calls whose outcomes are not waited for before the next
	EachItsOwn bool          // each call has a Publisher of its own, as in a web server's handler
}

// VisitorPlan is about Broadcast subscribers that come and go.
type VisitorPlan struct {
	PerSecond float64
	MostLife  time.Duration
	Dying     float64 // the share that ends without Close
}

// FaultPlan has the weights of faults.
type FaultPlan struct {
	Every    time.Duration // one fault each so often, on average; 0: none
	Recovery time.Duration // until the promises hold again, after faults of a process

	Notifications, Lines, Lossy, Hang, Kill, FlushAll, FlushScripts float64
}

// OperatorPlan has the weights of what operators do.
type OperatorPlan struct {
	Every time.Duration
	Limit time.Duration // of a call's context

	Pause, Rate, Retire, Examine, Read, Requeue float64
}

const (
	near = 100 * time.Microsecond
	far  = 20 * time.Millisecond

	topic         = "orders"
	leaseDuration = 5 * time.Second
	pollInterval  = 5 * time.Second // the default
	closeTimeout  = 2 * time.Second
	maxDeliveries = 3
)

// profiles are the kinds of plans. A profile that breaks nothing allows nothing to be late.
var profiles = []struct {
	name   string
	change func(p *Plan)
}{
	{"calm", func(p *Plan) { p.Strict = true }},
	{"far", func(p *Plan) { p.Strict, p.Trip = true, far }},
	// A call takes longer than the first time limits, and also heartbeats are late, so idle subscriptions poll.
	{"very far", func(p *Plan) {
		p.Trip, p.MaxLate = 900*time.Millisecond, 30*time.Second
		for i := range p.Publishers {
			p.Publishers[i].Limit = time.Minute
		}
	}},
	{"many far", func(p *Plan) {
		p.Strict, p.Trip, p.MostRequests = true, far, 8
		p.Groups = map[string]int{"billing": 20}
		p.Publishers = []PublisherPlan{{Gap: 300 * time.Millisecond, Immediate: 1}}
	}},
	{"many groups", func(p *Plan) {
		p.Strict, p.MostRequests, p.MostBytes, p.Duration = true, 5, 9000, 8*time.Second
		p.Groups = map[string]int{}
		for n := range 100 {
			p.Groups[fmt.Sprintf("group number %d", n)] = 1
		}
		p.Publishers = []PublisherPlan{{Gap: 500 * time.Millisecond, Immediate: 0.5, MostDelay: time.Second}}
	}},
	{"keys", func(p *Plan) {
		p.Strict = true
		p.Publishers[0].Keyed, p.Publishers[0].Window, p.Publishers[0].Changes = 1, 3*time.Second, 0.6
	}},
	{"ordered", func(p *Plan) {
		p.Strict, p.Partitions = true, 2
		p.Groups = map[string]int{"billing": 4, "audit": 1}
		for i := range p.Publishers {
			p.Publishers[i].Gap, p.Publishers[i].Ordered, p.Publishers[i].Failing = 50*time.Millisecond, 3, 0.03
		}
	}},
	{"requests", func(p *Plan) {
		p.Strict = true
		p.Publishers = []PublisherPlan{{Gap: 50 * time.Millisecond, Immediate: 1, EachItsOwn: true}}
	}},
	{"async", func(p *Plan) {
		p.Strict, p.Trip = true, far
		p.Publishers = []PublisherPlan{
			{Gap: 10 * time.Millisecond, Immediate: 0.5, MostDelay: time.Second, Async: 1},
			{Gap: 50 * time.Millisecond, Immediate: 0.5, MostDelay: time.Second, Async: 0.5},
		}
	}},
	{"churn", func(p *Plan) {
		p.Strict, p.Duration = true, 6*time.Second
		p.Visitors = VisitorPlan{PerSecond: 30, MostLife: 2 * time.Second}
	}},
	{"churn far", func(p *Plan) {
		p.Strict, p.Trip, p.Duration = true, far, 8*time.Second
		p.Visitors = VisitorPlan{PerSecond: 46, MostLife: 2 * time.Second}
		p.Publishers[0].Keyed, p.Publishers[0].Changes = 1, 0.6
	}},
	{"crowd", func(p *Plan) {
		p.Duration = 8 * time.Second
		p.Visitors = VisitorPlan{PerSecond: 12, MostLife: 5 * time.Second, Dying: 0.2}
	}},
	{"notifications", func(p *Plan) {
		p.Faults = FaultPlan{Every: 5 * time.Second, Notifications: 1}
		p.Duration, p.Publishers = time.Minute, []PublisherPlan{{Gap: 300 * time.Millisecond, Immediate: 1}}
	}},
	{"notifications far", func(p *Plan) {
		p.Trip, p.Faults = far, FaultPlan{Every: 5 * time.Second, Notifications: 1}
		p.Duration, p.Publishers = time.Minute, []PublisherPlan{{Gap: 300 * time.Millisecond, Immediate: 1}}
	}},
	{"flapping", func(p *Plan) { // connections for notifications that hold for a second or two
		p.Trip, p.MaxLate, p.Faults = far, pollInterval+time.Second, FaultPlan{Every: 1500 * time.Millisecond, Notifications: 1}
	}},
	{"hung", func(p *Plan) {
		p.Faults = FaultPlan{Every: 15 * time.Second, Recovery: 5 * time.Second, Hang: 1}
		p.Visitors = VisitorPlan{PerSecond: 1, MostLife: 5 * time.Second}
		p.Operator = everything(2*time.Second, 500*time.Millisecond)
		p.Publishers[0].Timeout, p.Publishers[0].Keyed, p.Publishers[0].Changes = 400*time.Millisecond, 0.5, 1
		p.Publishers[1].Limit, p.Publishers[1].Async = 400*time.Millisecond, 0.5
		p.Publishers[1].Gap = 100 * time.Millisecond
		p.Groups["guest"] = 1
	}},
	{"flushed", func(p *Plan) {
		p.Duration = 90 * time.Second
		p.Faults = FaultPlan{Every: 40 * time.Second, Recovery: 5 * time.Second, FlushAll: 1}
	}},
	{"lossy", func(p *Plan) {
		p.Publishers[1].Async = 0.5
		p.Faults = FaultPlan{Every: 5 * time.Second, Recovery: 5 * time.Second, Lossy: 3, Lines: 1, FlushScripts: 1}
		p.Partitions = 2
		p.Publishers[0].Keyed, p.Publishers[0].Changes = 0.5, 0.5
	}},
	{"deadly", func(p *Plan) {
		p.Publishers[1].Async = 0.5
		p.Faults = FaultPlan{Every: 6 * time.Second, Recovery: 5 * time.Second, Kill: 1}
		p.Visitors = VisitorPlan{PerSecond: 2, MostLife: 10 * time.Second, Dying: 0.5}
	}},
	{"operated", func(p *Plan) {
		p.Operator = everything(time.Second, 5*time.Second)
		p.Groups["guest"] = 1
	}},
	{"mixed", func(p *Plan) {
		p.Publishers[1].Async = 0.5
		p.Faults = FaultPlan{
			Every: 6 * time.Second, Recovery: 5 * time.Second,
			Notifications: 1, Lines: 1, Lossy: 2, Hang: 1, Kill: 1, FlushScripts: 1,
		}
		p.Visitors = VisitorPlan{PerSecond: 3, MostLife: 10 * time.Second, Dying: 0.2}
		p.Operator = everything(3*time.Second, 5*time.Second)
		p.Publishers[0].Keyed, p.Publishers[0].Changes = 0.5, 0.5
		p.Groups["guest"] = 1
		p.Partitions = 3
	}},
}

// shorten makes a plan for a run of a second or two.
func (p *Plan) shorten() {
	p.Duration /= 3
	for group, number := range p.Groups {
		p.Groups[group] = min(number, 8)
	}
	p.Visitors.PerSecond /= 3
	if p.Faults.Recovery > 0 { // not connections for notifications, which have to work for a while
		p.Faults.Every /= 2
	}
}

func everything(every, limit time.Duration) OperatorPlan {
	return OperatorPlan{Every: every, Limit: limit, Pause: 1, Rate: 1, Retire: 1, Examine: 1, Read: 2, Requeue: 1}
}

// planOf makes the plan of a profile; nil if there is none.
func planOf(profile string) *Plan {
	for _, candidate := range profiles {
		if candidate.name == profile {
			p := &Plan{
				Profile: profile, Duration: 30 * time.Second, Trip: near, MaxLate: 300 * time.Millisecond, Partitions: 1,
				Groups: map[string]int{"billing": 2, "audit": 1},
				Publishers: []PublisherPlan{
					{Gap: 200 * time.Millisecond, MostDelay: 5 * time.Second, Immediate: 0.3},
					{Gap: time.Second, MostDelay: 3 * time.Second, Failing: 0.1},
				},
			}
			candidate.change(p)
			return p
		}
	}
	return nil
}

// rngOf is a source of numbers that depends on the seed and a name alone.
func rngOf(seed uint64, name string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(name) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, h))
}

// between draws a duration.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// choose runs one of the actions, drawn by their weights.
func choose(r *rand.Rand, actions []action) {
	total := 0.0
	for _, a := range actions {
		total += a.weight
	}
	draw := r.Float64() * total
	for _, a := range actions {
		if draw -= a.weight; draw < 0 {
			a.do()
			return
		}
	}
}

type action struct {
	weight float64
	do     func()
}
