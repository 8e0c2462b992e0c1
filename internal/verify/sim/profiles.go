package sim

import (
	"math/rand/v2"
	"time"
)

// Profiles are the kinds of plans: calm, where nothing fails, lossy, crashy and mixed; and
// those that test one thing, mostly without faults.
var Profiles = []string{
	"calm", "lossy", "crashy", "mixed",
	"trickle", "blocked", "stuck", "bursts", "order", "lies", "inline", "large", "churn", "keys",
	"paused", "limited", "retired", "told", "crowd",
}

// PlanOf makes a plan of a profile; nil if there is no such profile.
func PlanOf(profile string, seed uint64) *Plan {
	r := luck(seed, "plan "+profile)
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
		p.Faults.Killed, p.Faults.Stopped, p.Faults.Left = 2, 1, 2
		killers(r, p)
	case "mixed":
		p.Faults = Faults{
			Latency: p.Faults.Latency, Every: 5 * time.Second, Background: 0.002,
			Storms: 2, Stalls: 1, Refusals: 1, Deafness: 2, Lies: 1, Killed: 1, Stopped: 1, Left: 1,
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
		moods(p, Mood{For: time.Hour, Most: 5 * time.Millisecond})
	case "inline":
		inline(r, p)
	case "large":
		trickle(r, p)
		p.Publishers[0].Large, p.Publishers[0].LargeBytes = 1, pick(r, 1<<20, 4<<20)
		p.Publishers[0].Most = 20
	case "keys":
		keys(r, p)
	case "paused":
		told(r, p, OperatorPlan{Pauses: 1})
	case "limited":
		told(r, p, OperatorPlan{Limits: 1})
	case "retired":
		told(r, p, OperatorPlan{Retirements: 1})
	case "crowd":
		crowd(r, p)
	case "told":
		told(r, p, OperatorPlan{Pauses: 1, Limits: 1, Retirements: 0.5})
	case "churn":
		p.Faults.Every, p.Faults.Left = 3*time.Second, 1
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
			g.Consumers = append(g.Consumers, somebody(r))
		}
		p.Groups = append(p.Groups, g)
	}
	for range pick(r, 1, 1, 2, 3) {
		p.Publishers = append(p.Publishers, writer(r))
	}
	return p
}

// somebody draws the plan of a consumer.
func somebody(r *rand.Rand) ConsumerPlan {
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
		c.Moods = append(c.Moods, temper(r))
	}
	return c
}

// temper draws how fast handlers are for a while.
func temper(r *rand.Rand) Mood {
	m := Mood{For: between(r, time.Second, 20*time.Second)}
	switch r.IntN(6) {
	case 0, 1:
		m.Most = 200 * time.Microsecond
	case 2:
		m.Least, m.Most = time.Millisecond, 5*time.Millisecond
	case 3:
		m.Least, m.Most = 10*time.Millisecond, 80*time.Millisecond
	case 4:
		m.Least, m.Most = 200*time.Millisecond, 5*time.Second
	default:
		m.Blocked = true
	}
	return m
}

// writer draws the plan of a publisher.
func writer(r *rand.Rand) PublisherPlan {
	p := PublisherPlan{Least: 1, Most: 1, GapLeast: 10 * time.Millisecond, Gap: 100 * time.Millisecond}
	switch r.IntN(3) {
	case 0: // bursts
		p.Least, p.Most, p.GapLeast, p.Gap = 10, pick(r, 50, 500), 500*time.Millisecond, 10*time.Second
	case 1: // now and then
		p.Most, p.Gap = 3, 3*time.Second
	}
	p.Delayed, p.MostDelay = pick(r, 0, 0.3, 1), pick(r, 100*time.Millisecond, 5*time.Second)
	p.Slow, p.Slowness = pick(r, 0, 0, 0.01), between(r, time.Second, 20*time.Second)
	if chance(r, 0.1) {
		p.Large, p.LargeBytes = 0.1, pick(r, 100_000, 1<<20, 4<<20)
	}
	return p
}

// killers lets some messages kill their consumers, if MaxDeliveries ends that.
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

func moods(p *Plan, list ...Mood) {
	for i := range p.Groups {
		for j := range p.Groups[i].Consumers {
			p.Groups[i].Consumers[j].Moods = list
		}
	}
}

// one is a plan with one group on one partition.
func one(p *Plan, consumers ...ConsumerPlan) {
	p.Partitions, p.MaxDeliveries, p.Strict = 1, 0, true
	p.Groups = []GroupPlan{{Name: "g", Consumers: consumers}}
}

// trickle publishes steadily while a consumer that used to be fast handles a slow message.
func trickle(r *rand.Rand, p *Plan) {
	n := pick(r, 1, 1, 2, 5)
	fast := ConsumerPlan{MaxInFlight: n, Readers: n, Moods: []Mood{
		{For: between(r, 2*time.Second, 10*time.Second), Most: 200 * time.Microsecond},
		{For: between(r, 5*time.Second, 20*time.Second), Blocked: true},
	}}
	idle := ConsumerPlan{MaxInFlight: n, Readers: n, Moods: []Mood{{For: time.Hour, Most: time.Millisecond}}}
	one(p, fast, idle)
	p.Duration = time.Minute
	p.Publishers = []PublisherPlan{{Least: 1, Most: 1, GapLeast: 40 * time.Millisecond, Gap: 60 * time.Millisecond}}
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
	p.Publishers = []PublisherPlan{{Least: n, Most: 4 * n, GapLeast: gap / 20, Gap: gap}}
}

// stuck sends a single burst to a consumer whose workers have just blocked.
func stuck(r *rand.Rand, p *Plan) {
	blocked(r, p)
	const fast, cycle = 2 * time.Second, 12 * time.Second
	p.Groups[0].Consumers[0].Moods = []Mood{{For: fast, Most: 200 * time.Microsecond}, {For: cycle - fast, Blocked: true}}
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

// bursts sends rare bursts to consumers with changing moods.
func bursts(r *rand.Rand, p *Plan) {
	one(p, somebody(r), somebody(r))
	p.Groups[0].Consumers[0].Readers = p.Groups[0].Consumers[0].MaxInFlight
	p.Groups[0].Consumers[1].Readers = p.Groups[0].Consumers[1].MaxInFlight
	p.Publishers = []PublisherPlan{{Least: 1, Most: 1000, GapLeast: 100 * time.Millisecond, Gap: 20 * time.Second}}
}

// order publishes, after many fast messages, groups of three: a slow one, one that waits
// behind it, and one just when the second is given back.
func order(r *rand.Rand, p *Plan) {
	one(p, ConsumerPlan{MaxInFlight: 1, Readers: 1, Moods: []Mood{{For: time.Hour, Most: 200 * time.Microsecond}}})
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

// inline has readers that handle one message after another, with many in flight.
func inline(r *rand.Rand, p *Plan) {
	reader := func() ConsumerPlan {
		return ConsumerPlan{MaxInFlight: pick(r, 2, 10, 50), Readers: 1, Moods: []Mood{
			{For: between(r, time.Second, 5*time.Second), Most: 2 * time.Millisecond},
			{For: between(r, time.Second, 20*time.Second), Blocked: true},
		}}
	}
	one(p, reader(), reader())
	p.Duration = time.Minute
	p.Publishers = []PublisherPlan{{Least: 1, Most: 1, GapLeast: 10 * time.Millisecond, Gap: 100 * time.Millisecond}}
}
