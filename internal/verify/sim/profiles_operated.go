package sim

import (
	"math/rand/v2"
	"time"
)

// operated has an operator who pauses, limits or retires groups, with and without faults.
func operated(r *rand.Rand, p *Plan, o OperatorPlan) {
	p.Operator, p.Operator.Every = o, pick(r, time.Second, 5*time.Second, 15*time.Second)
	p.Raise = pick(r, 0, 0, 1, 2)
	switch r.IntN(4) {
	case 0:
		p.Faults.Every, p.Faults.Background = 8*time.Second, 0.002
		p.Faults.Storms, p.Faults.Stalls, p.Faults.Deafness, p.Faults.Lies = 3, 1, 2, 1
	case 1:
		p.Faults.Every = 8 * time.Second
		p.Faults.Killed, p.Faults.Stopped, p.Faults.Leaves = 2, 1, 2
		killers(r, p)
	case 2:
		keyed(r, p)
	}
}

// crowd has many consumers, but limits that let few work at a time.
func crowd(r *rand.Rand, p *Plan) {
	n := pick(r, 1, 2, 10)
	var list []ConsumerPlan
	for range pick(r, 10, 20, 40) {
		pace := Pace{For: time.Hour, Max: pick(r, time.Millisecond, 20*time.Millisecond, 200*time.Millisecond, 20*time.Second)}
		list = append(list, ConsumerPlan{MaxInFlight: n, Readers: n, Paces: []Pace{pace}})
	}
	one(p, list...)
	p.Operator = OperatorPlan{Every: 30 * time.Second, Limits: 1}
	p.Duration = 3 * time.Minute
	p.Publishers = []PublisherPlan{{
		MinBatch: 1, MaxBatch: pick(r, 1, 1, 20), MinGap: 20 * time.Millisecond, MaxGap: pick(r, 100*time.Millisecond, time.Second),
	}}
}
