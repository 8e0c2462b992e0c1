package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// explorer walks through all states of a universe that can be reached, breadth first, so
// that the first sequence of operations that leads to a violation is a shortest one.
type explorer struct {
	u       *universe
	runners []*runner
	verify  int // every so many states are compared with what is in Redis; 0 for none

	nodes       []node
	index       map[string]int32 // encoded state -> node
	level       []int32          // nodes to expand now
	next        []int32
	depth       int
	moves       map[int32][]move // of a state without damage, for torn files
	strings     map[string]string
	transitions int
	pairSteps   int
	tolerated   map[string]int
	violations  map[string]violation // the first of each kind
	bounded     bool                 // gave up at u.states
	start       time.Time
	elapsed     time.Duration
	limit       time.Duration // give up then
	stopAtFirst bool          // violation
}

// node is a state, or, on the way from a torn file to a restart, a state and what the
// file would make of it (explore_torn_test.go).
type node struct {
	state  string // of a pair: what is in the file
	memory int32  // of a pair: the state that is in Redis; else -1
	parent int32
	event  string // how it came from its parent
	torn   string // after torn which call
	steps  int16  // since the torn call or the restart
}

// move is a transition that was made: what it wrote, and where it led.
type move struct {
	op      op
	effects string
	next    int32 // -1 out of bounds
}

type violation struct {
	text string
	node int32 // where it happened
	op   string
	step *step
}

func newExplorer(client *redis.Client, sources map[string]string, u *universe) *explorer {
	x := &explorer{
		u: u, index: map[string]int32{}, moves: map[int32][]move{}, strings: map[string]string{},
		tolerated: map[string]int{}, violations: map[string]violation{},
	}
	for n := range 2 {
		x.runners = append(x.runners, newRunner(client, sources, fmt.Sprintf("%s/%d/%d", u.name, time.Now().UnixNano(), n), u))
	}
	return x
}

// run explores until nothing new is found, or a bound is reached.
func (x *explorer) run(ctx context.Context) error {
	x.start = time.Now()
	x.add(node{state: explored{}.encode(), memory: -1, parent: -1})
	for x.level, x.next = x.next, nil; len(x.level) > 0 && (!x.stopAtFirst || len(x.violations) == 0); x.level, x.next = x.next, nil {
		if err := x.expandLevel(ctx); err != nil {
			return err
		}
		x.depth++
	}
	x.elapsed = time.Since(x.start)
	return nil
}

// add stores a node unless it is known, and returns its number.
func (x *explorer) add(n node) int32 {
	key := n.state
	if n.memory >= 0 {
		key = fmt.Sprintf("%d\x00%s", n.memory, n.state)
	}
	if known, ok := x.index[key]; ok {
		return known
	}
	if len(x.nodes) >= x.u.states {
		x.bounded = true
		return -1
	}
	number := int32(len(x.nodes))
	x.index[key] = number
	x.nodes = append(x.nodes, n)
	x.next = append(x.next, number)
	return number
}

// expandLevel makes all transitions from the states of a level, first those that need
// Redis; the pairs then follow what is known of the states in their memory.
func (x *explorer) expandLevel(ctx context.Context) error {
	var states, pairs []int32
	for _, number := range x.level {
		switch n := x.nodes[number]; {
		case n.memory >= 0:
			pairs = append(pairs, number)
		case n.steps == 0 || int(n.steps) <= x.u.after:
			states = append(states, number)
		}
	}
	for chunk := range slices.Chunk(states, 256) {
		if time.Since(x.start) > x.limit || x.stopAtFirst && len(x.violations) > 0 {
			x.bounded = true
			break
		}
		if err := x.expandStates(ctx, chunk); err != nil {
			return err
		}
	}
	for _, number := range pairs {
		x.expandPair(number)
	}
	return nil
}

// made is what one expanded state gave.
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
		wait.Go(func() { // ends with its share of the chunk
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

// edits is what an operation does that is no call of a script.
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
	panic("no script and no edit: " + o.kind)
}

// take applies what a call wrote, and judges it.
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

// merge adds what came of a state.
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

func (x *explorer) intern(text string) string {
	if known, ok := x.strings[text]; ok {
		return known
	}
	x.strings[text] = text
	return text
}

// within tells whether a state is within the bound on deliveries.
func (t *step) within() bool {
	for _, given := range t.claim.given {
		if fence(given.token) > t.u.deliveries {
			return false
		}
	}
	return true
}

// report keeps the first violation of each kind of each operation.
func (x *explorer) report(bad string, number int32, t *step) {
	kind, _, _ := strings.Cut(bad, ":")
	kind += " (" + strings.TrimSpace(t.op.kind+" "+x.nodes[number].torn) + ")"
	if _, ok := x.violations[kind]; !ok {
		x.violations[kind] = violation{bad, number, t.op.String(), t}
	}
}

// path tells how a node is reached.
func (x *explorer) path(number int32) (events []string) {
	for ; number > 0; number = x.nodes[number].parent {
		events = append(events, x.nodes[number].event)
	}
	slices.Reverse(events)
	return events
}

func (v violation) describe(x *explorer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", v.text)
	for i, event := range append(x.path(v.node), v.op) {
		fmt.Fprintf(&b, "  %2d. %s\n", i+1, event)
	}
	if *exploreStates {
		fmt.Fprintf(&b, "  before:\n%s\n  after:\n%s", v.step.before, v.step.after)
	}
	return b.String()
}
