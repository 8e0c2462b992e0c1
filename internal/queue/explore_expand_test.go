package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// made is the result of expanding one state.
type made struct {
	steps []*step
	texts []string // encoded states after each
	bad   []string
	err   error
	count map[string]int
}

func (x *explorer) expandStates(ctx context.Context, chunk []int32) error {
	results := make([]made, len(chunk))
	var wait sync.WaitGroup
	for w, r := range x.runners {
		wait.Go(func() { // ends after its share of the chunk
			for i := w; i < len(chunk); i += len(x.runners) {
				verify := x.verify > 0 && int(chunk[i])%x.verify == 0
				results[i] = x.expand(ctx, r, decode(x.nodes[chunk[i]].state), verify)
			}
		})
	}
	wait.Wait()
	for i, result := range results {
		if result.err != nil {
			return result.err
		}
		x.merge(chunk[i], result)
	}
	return nil
}

// expand makes all operations that are possible in a state.
func (x *explorer) expand(ctx context.Context, r *runner, s explored, verify bool) made {
	result := made{count: map[string]int{}}
	var calls []call
	ops := x.u.ops(s)
	for _, o := range ops {
		if c, ok := x.u.call(s, o); ok {
			calls = append(calls, c)
		}
	}
	outcomes, err := r.run(ctx, s, calls, verify)
	if err != nil {
		return made{err: err}
	}
	for _, o := range ops {
		t := &step{u: x.u, op: o, before: s, count: func(class string) { result.count[class]++ }}
		if _, ok := x.u.call(s, o); ok {
			t.out, outcomes = outcomes[0], outcomes[1:]
		} else {
			t.out.effects = edits(o)
		}
		bad, err := t.take()
		if err != nil {
			return made{err: err}
		}
		result.steps = append(result.steps, t)
		x.u.canonical(t.after)
		result.texts = append(result.texts, t.after.encode())
		result.bad = append(result.bad, bad)
	}
	return result
}

// edits are the writes of an operation that calls no script.
func edits(o op) []effect {
	switch o.kind {
	case "cancel", "reschedule": // lost
		return nil
	case "deregister":
		return []effect{{"SREM", "groups", o.group}}
	case "forget":
		return []effect{{"DEL", o.arg}}
	case "lapse":
		return []effect{{"LAPSE", o.group, o.arg, past + o.arg[1:]}}
	case "due":
		return []effect{{"ZADDXX", o.arg, past, o.msg}}
	}
	panic("no script and no edits for " + o.kind)
}

// take applies the writes of a call and checks them.
func (t *step) take() (bad string, err error) {
	t.after = t.before.clone()
	var dirty []effect
	for _, e := range t.out.effects {
		if t.after.apply(e) {
			dirty = append(dirty, e)
		}
	}
	t.out.effects = dirty
	if got := t.out.snapshot; got != nil && !slices.Equal(got, t.after.redis()) {
		return "", fmt.Errorf("%s: Redis has\n%s\nbut its writes make\n%s", t.op, got, t.after)
	}
	if t.op.kind == "claim" && t.out.failed == "" {
		t.claim = claimReply(t.out.reply)
	}
	if bad = t.truth(); bad == "" {
		t.learn()
		bad = t.u.invariants(t.after, t.count)
	}
	return bad, nil
}

// merge adds the results of expanding a state.
func (x *explorer) merge(number int32, result made) {
	for class, n := range result.count {
		x.tolerated[class] += n
	}
	from := x.nodes[number]
	var moves []move
	for i, t := range result.steps {
		x.transitions++
		if bad := result.bad[i]; bad != "" {
			x.report(bad, number, t)
			continue
		}
		next := int32(-1)
		if t.within() {
			n := node{state: result.texts[i], memory: -1, parent: number, event: x.intern(t.op.String())}
			if from.steps > 0 {
				n.steps, n.torn = from.steps+1, from.torn
			}
			next = x.add(n)
		}
		if x.u.between > 0 && from.steps == 0 {
			moves = append(moves, move{t.op, x.intern(encodeEffects(t.out.effects)), next})
		}
	}
	if moves != nil {
		x.moves[number] = moves
		x.tear(number, moves)
	}
}

// within tells whether a state is within the limit of deliveries.
func (t *step) within() bool {
	for _, given := range t.claim.given {
		if fence(given.token) > t.u.deliveries {
			return false
		}
	}
	return true
}
