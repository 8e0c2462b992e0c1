package sim

import (
	"math/rand/v2"
	"time"
)

// Profiles are the kinds of plans: calm, without faults, lossy, crashy and mixed; and profiles that
// test one thing, mostly without faults.
var Profiles = []string{
	"calm", "lossy", "crashy", "mixed",
	"trickle", "blocked", "stuck", "bursts", "order", "lies", "inline", "large", "churn", "keys",
	"paused", "limited", "retired", "settings", "crowd", "turns",
}

// PlanOf makes a plan of a profile; nil if there is no such profile.
func PlanOf(profile string, seed uint64) *Plan {
	r := rng(seed, "plan "+profile)
	p := common(r)
	p.Profile = profile
	switch profile {
	case "calm":
		p.Strict = true
	case "lossy":
		p.Faults.Every, p.Faults.Background = 8*time.Second, 0.001
		p.Faults.Storms, p.Faults.Stalls, p.Faults.Refusals, p.Faults.Deafness, p.Faults.Lies = 3, 1, 1, 2, 1
	case "crashy":
		p.Faults.Every = 8 * time.Second
		p.Faults.Killed, p.Faults.Stopped, p.Faults.Leaves = 2, 1, 2
		killers(r, p)
	case "mixed":
		p.Faults = Faults{
			Latency: p.Faults.Latency, Every: 5 * time.Second, Background: 0.002,
			Storms: 2, Stalls: 1, Refusals: 1, Deafness: 2, Lies: 1, Killed: 1, Stopped: 1, Leaves: 1,
		}
		killers(r, p)
		p.Raise = r.IntN(3)
		keyed(r, p)
		if chance(r, 0.3) {
			p.Operator = OperatorPlan{Every: 15 * time.Second, Pauses: 2, Limits: 2, Retirements: 1}
		}
	case "trickle":
		trickle(r, p)
	case "blocked":
		blocked(r, p)
	case "stuck":
		stuck(r, p)
	case "bursts":
		bursts(r, p)
	case "order":
		order(r, p)
	case "lies":
		p.Faults.Every, p.Faults.Lies = 4*time.Second, 1
		paces(p, Pace{For: time.Hour, Max: 5 * time.Millisecond})
	case "inline":
		inline(r, p)
	case "large":
		trickle(r, p)
		p.Publishers[0].Large, p.Publishers[0].LargeBytes = 1, pick(r, 1<<20, 4<<20)
		p.Publishers[0].MaxBatch = 20
	case "keys":
		keys(r, p)
	case "paused":
		operated(r, p, OperatorPlan{Pauses: 1})
	case "limited":
		operated(r, p, OperatorPlan{Limits: 1})
	case "retired":
		operated(r, p, OperatorPlan{Retirements: 1})
	case "crowd":
		crowd(r, p)
	case "settings":
		operated(r, p, OperatorPlan{Pauses: 1, Limits: 1, Retirements: 0.5})
	case "turns":
		turns(r, p)
	case "churn":
		p.Faults.Every, p.Faults.Leaves = 3*time.Second, 1
	default:
		return nil
	}
	return p
}

// pick draws one of the values.
func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// common draws a plan without faults.
func common(r *rand.Rand) *Plan {
	p := &Plan{
		Duration:      between(r, 30*time.Second, 3*time.Minute),
		Partitions:    pick(r, 1, 1, 1, 2, 3),
		Lease:         pick(r, 2*time.Second, 10*time.Second, 30*time.Second),
		Poll:          pick(r, time.Second, 5*time.Second, 5*time.Second),
		CloseTimeout:  pick(r, time.Second, 10*time.Second),
		MaxDeliveries: pick(r, 0, 0, 1, 3, 5),
		Faults:        Faults{Latency: pick(r, 0, 200*time.Microsecond, time.Millisecond, 3*time.Millisecond)},
	}
	for n := range pick(r, 1, 1, 2, 3) {
		g := GroupPlan{Name: string(rune('g' + n))}
		if n > 0 && chance(r, 0.3) {
			g.Joins = between(r, 0, p.Duration)
		}
		for range pick(r, 1, 2, 2, 3, 5) {
			g.Consumers = append(g.Consumers, drawConsumer(r))
		}
		p.Groups = append(p.Groups, g)
	}
	for range pick(r, 1, 1, 2, 3) {
		p.Publishers = append(p.Publishers, writer(r))
	}
	return p
}

// drawConsumer draws the plan of a consumer.
func drawConsumer(r *rand.Rand) ConsumerPlan {
	c := ConsumerPlan{MaxInFlight: pick(r, 1, 1, 2, 5, 10, 20, 50, 100)}
	c.Readers = c.MaxInFlight
	if chance(r, 0.2) {
		c.Readers = pick(r, 1, (c.MaxInFlight+1)/2)
	}
	if chance(r, 0.3) {
		c.Nacks = pick(r, 0.01, 0.1, 0.5)
	}
	if chance(r, 0.1) {
		c.Pauses = 0.01
	}
	for range 1 + r.IntN(4) {
		c.Paces = append(c.Paces, temper(r))
	}
	return c
}

// temper draws the speed of handlers for a while.
func temper(r *rand.Rand) Pace {
	m := Pace{For: between(r, time.Second, 20*time.Second)}
	switch r.IntN(6) {
	case 0, 1:
		m.Max = 200 * time.Microsecond
	case 2:
		m.Min, m.Max = time.Millisecond, 5*time.Millisecond
	case 3:
		m.Min, m.Max = 10*time.Millisecond, 80*time.Millisecond
	case 4:
		m.Min, m.Max = 200*time.Millisecond, 5*time.Second
	default:
		m.Blocked = true
	}
	return m
}

// writer draws the plan of a publisher.
func writer(r *rand.Rand) PublisherPlan {
	p := PublisherPlan{MinBatch: 1, MaxBatch: 1, MinGap: 10 * time.Millisecond, MaxGap: 100 * time.Millisecond}
	switch r.IntN(3) {
	case 0: // bursts
		p.MinBatch, p.MaxBatch, p.MinGap, p.MaxGap = 10, pick(r, 50, 500), 500*time.Millisecond, 10*time.Second
	case 1: // occasionally
		p.MaxBatch, p.MaxGap = 3, 3*time.Second
	}
	p.Delayed, p.MaxDelay = pick(r, 0, 0.3, 1), pick(r, 100*time.Millisecond, 5*time.Second)
	p.Slow, p.Slowness = pick(r, 0, 0, 0.01), between(r, time.Second, 20*time.Second)
	if chance(r, 0.1) {
		p.Large, p.LargeBytes = 0.1, pick(r, 100_000, 1<<20, 4<<20)
	}
	return p
}

// killers lets some messages kill their consumers, if MaxDeliveries limits this.
func killers(r *rand.Rand, p *Plan) {
	if p.MaxDeliveries > 0 {
		p.Publishers[0].Killers = pick(r, 0, 0.001, 0.01)
	}
}

// keyed gives some messages keys, by which they are cancelled and rescheduled.
func keyed(r *rand.Rand, p *Plan) {
	for i := range p.Publishers {
		pub := &p.Publishers[i]
		pub.Partitions = p.Partitions + r.IntN(p.Raise+1)
		pub.Keyed, pub.Keys, pub.Changes = pick(r, 0, 0.3, 1), pick(r, 1, 3, 20), pick(r, 0, 0.3, 1)
		pub.DuplicatePolicy = pick(r, "reject", "ignore", "replace")
	}
}

// keys publishes and cancels messages with keys while partitions are added.
func keys(r *rand.Rand, p *Plan) {
	if chance(r, 0.5) {
		p.Faults.Every, p.Faults.Background = 8*time.Second, 0.01
		p.Faults.Storms, p.Faults.Stalls, p.Faults.Refusals = 2, 1, 1
	}
	p.Raise = r.IntN(4)
	keyed(r, p)
	for i := range p.Publishers {
		pub := &p.Publishers[i]
		pub.Keyed, pub.Changes, pub.Delayed = pick(r, 0.3, 1), 1, pick(r, 0.3, 1)
		pub.PublishTimeout = pick(r, 0, 300*time.Millisecond, 2*time.Second)
	}
}

func paces(p *Plan, list ...Pace) {
	for i := range p.Groups {
		for j := range p.Groups[i].Consumers {
			p.Groups[i].Consumers[j].Paces = list
		}
	}
}

// one makes a plan with one group on one partition.
func one(p *Plan, consumers ...ConsumerPlan) {
	p.Partitions, p.MaxDeliveries, p.Strict = 1, 0, true
	p.Groups = []GroupPlan{{Name: "g", Consumers: consumers}}
}

// trickle publishes steadily while a consumer that used to be fast handles a slow message.
func trickle(r *rand.Rand, p *Plan) {
	n := pick(r, 1, 1, 2, 5)
	fast := ConsumerPlan{MaxInFlight: n, Readers: n, Paces: []Pace{
		{For: between(r, 2*time.Second, 10*time.Second), Max: 200 * time.Microsecond},
		{For: between(r, 5*time.Second, 20*time.Second), Blocked: true},
	}}
	idle := ConsumerPlan{MaxInFlight: n, Readers: n, Paces: []Pace{{For: time.Hour, Max: time.Millisecond}}}
	one(p, fast, idle)
	p.Duration = time.Minute
	p.Publishers = []PublisherPlan{{MinBatch: 1, MaxBatch: 1, MinGap: 40 * time.Millisecond, MaxGap: 60 * time.Millisecond}}
}

// blocked blocks all workers of a consumer at once while another consumer is idle.
func blocked(r *rand.Rand, p *Plan) {
	trickle(r, p)
	n := pick(r, 1, 2, 5, 10, 20, 50, 100)
	for i := range p.Groups[0].Consumers {
		p.Groups[0].Consumers[i].MaxInFlight = n
		p.Groups[0].Consumers[i].Readers = n
	}
	gap := pick(r, 500*time.Millisecond, 2*time.Second, 20*time.Second)
	p.Publishers = []PublisherPlan{{MinBatch: n, MaxBatch: 4 * n, MinGap: gap / 20, MaxGap: gap}}
}

// stuck sends a single burst to a consumer whose workers have just blocked.
func stuck(r *rand.Rand, p *Plan) {
	blocked(r, p)
	const fast, cycle = 2 * time.Second, 12 * time.Second
	p.Groups[0].Consumers[0].Paces = []Pace{{For: fast, Max: 200 * time.Microsecond}, {For: cycle - fast, Blocked: true}}
	n := p.Groups[0].Consumers[0].MaxInFlight
	var list []Scripted
	for start := time.Duration(0); start < 5*cycle; start += cycle {
		for at := start; at < start+fast*9/10; at += between(r, 20*time.Millisecond, 200*time.Millisecond) {
			list = append(list, Scripted{At: at, Count: 1 + r.IntN(3*n)})
		}
		list = append(list, Scripted{At: start + fast + between(r, 0, time.Second), Count: n + 1 + r.IntN(5*n)})
	}
	p.Publishers = []PublisherPlan{{First: list}}
}

// bursts sends rare bursts to consumers whose behavior changes.
func bursts(r *rand.Rand, p *Plan) {
	one(p, drawConsumer(r), drawConsumer(r))
	p.Groups[0].Consumers[0].Readers = p.Groups[0].Consumers[0].MaxInFlight
	p.Groups[0].Consumers[1].Readers = p.Groups[0].Consumers[1].MaxInFlight
	p.Publishers = []PublisherPlan{{MinBatch: 1, MaxBatch: 1000, MinGap: 100 * time.Millisecond, MaxGap: 20 * time.Second}}
}

// order publishes, after many fast messages, groups of three: a slow message, a second one that
// waits behind it, and a third one at the time when the second is released.
func order(r *rand.Rand, p *Plan) {
	one(p, ConsumerPlan{MaxInFlight: 1, Readers: 1, Paces: []Pace{{For: time.Hour, Max: 200 * time.Microsecond}}})
	p.Faults.Latency = pick(r, 0, 100*time.Microsecond, time.Millisecond, 3*time.Millisecond)
	var list []Scripted
	for at := time.Second; at < time.Minute; at += between(r, 450*time.Millisecond, 700*time.Millisecond) {
		slow := at + 100*time.Millisecond
		second := slow + between(r, time.Millisecond, 10*time.Millisecond)
		third := second + between(r, 97*time.Millisecond, 108*time.Millisecond)
		list = append(list,
			Scripted{At: at, Count: 40}, // shows that handlers are fast
			Scripted{At: slow, Count: 1, Slow: between(r, 105*time.Millisecond, 250*time.Millisecond)},
			Scripted{At: second, Count: 1}, Scripted{At: third, Count: 1},
		)
	}
	p.Duration = time.Minute + time.Second
	p.Publishers = []PublisherPlan{{First: list}}
}

// inline uses readers that handle one message after another, with many in flight.
func inline(r *rand.Rand, p *Plan) {
	reader := func() ConsumerPlan {
		return ConsumerPlan{MaxInFlight: pick(r, 2, 10, 50), Readers: 1, Paces: []Pace{
			{For: between(r, time.Second, 5*time.Second), Max: 2 * time.Millisecond},
			{For: between(r, time.Second, 20*time.Second), Blocked: true},
		}}
	}
	one(p, reader(), reader())
	p.Duration = time.Minute
	p.Publishers = []PublisherPlan{{MinBatch: 1, MaxBatch: 1, MinGap: 10 * time.Millisecond, MaxGap: 100 * time.Millisecond}}
}
