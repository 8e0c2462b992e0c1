package explore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Explorer visits all reachable states of a universe, breadth first, so the first sequence of
// operations that leads to a violation is one of the shortest.
type Explorer struct {
	u       *Universe
	options Options
	runners []*runner

	nodes       []node
	index       map[string]int32 // encoded state -> node
	level       []int32          // nodes to expand now
	next        []int32
	depth       int
	moves       map[int32][]move // from each state without damage, for torn files
	strings     map[string]string
	transitions int
	pairSteps   int
	violations  map[string]violation // the first of each kind
	bounded     bool                 // stopped at a limit of the options
	start       time.Time
	elapsed     time.Duration
}

// Options limit a run.
type Options struct {
	States      int           // stop after this many
	Limit       time.Duration // stop after this time
	Verify      int           // compare every nth state with Redis; 0: none
	StopAtFirst bool          // stop at the first violation
}

// node is a state or, between a torn call and a restart, a pair of the state in the file and the
// state in memory.
type node struct {
	state  string // of a pair: what is in the file
	memory int32  // of a pair: the node of the state in memory; else -1
	parent int32
	event  string // the operation that led from its parent to it
	torn   string // the torn call before it
	steps  int16  // since the torn call or the restart
}

// move is a transition: its writes, and the node that it leads to.
type move struct {
	op      op
	effects string
	next    int32 // -1: out of bounds
}

// New returns an Explorer of a universe that calls the scripts with these sources on a Redis.
func New(client *redis.Client, sources map[string]string, u *Universe, options Options) *Explorer {
	x := &Explorer{
		u: u, options: options, index: map[string]int32{}, moves: map[int32][]move{}, strings: map[string]string{},
		violations: map[string]violation{},
	}
	for n := range 2 {
		x.runners = append(x.runners, newRunner(client, sources, fmt.Sprintf("%s/%d/%d", u.Name, time.Now().UnixNano(), n), u))
	}
	return x
}

// Run explores until it finds no new states, or reaches a limit.
func (x *Explorer) Run(ctx context.Context) error {
	x.start = time.Now()
	x.add(node{state: x.u.first().encode(), memory: -1, parent: -1})
	for x.level, x.next = x.next, nil; len(x.level) > 0 && !x.enough(); x.level, x.next = x.next, nil {
		if err := x.expandLevel(ctx); err != nil {
			return err
		}
		x.depth++
	}
	x.bounded = x.bounded || len(x.level) > 0 // the time ran out between two levels
	x.elapsed = time.Since(x.start)
	return nil
}

func (x *Explorer) enough() bool {
	return time.Since(x.start) > x.options.Limit || x.options.StopAtFirst && len(x.violations) > 0
}

// add stores a node unless it is known, and returns its number.
func (x *Explorer) add(n node) int32 {
	key := n.state
	if n.memory >= 0 {
		key = fmt.Sprintf("%d\x00%s", n.memory, n.state)
	}
	if known, ok := x.index[key]; ok {
		return known
	}
	if len(x.nodes) >= x.options.States {
		x.bounded = true
		return -1
	}
	number := int32(len(x.nodes))
	x.index[key] = number
	x.nodes = append(x.nodes, n)
	x.next = append(x.next, number)
	return number
}

// expandLevel makes all transitions from the nodes of a level: first from states, which needs
// Redis, then from pairs, which follow the known moves of their state in memory.
func (x *Explorer) expandLevel(ctx context.Context) error {
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
		if x.enough() {
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

func (x *Explorer) intern(text string) string {
	if known, ok := x.strings[text]; ok {
		return known
	}
	x.strings[text] = text
	return text
}

// made is the result of expanding one state.
type made struct {
	steps []*step
	texts []string // encoded states after each
	bad   []string
	err   error
}

func (x *Explorer) expandStates(ctx context.Context, chunk []int32) error {
	results := make([]made, len(chunk))
	var wait sync.WaitGroup
	for w, r := range x.runners {
		wait.Go(func() { // ends after its share of the chunk
			for i := w; i < len(chunk); i += len(x.runners) {
				verify := x.options.Verify > 0 && int(chunk[i])%x.options.Verify == 0
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
func (x *Explorer) expand(ctx context.Context, r *runner, s state, verify bool) made {
	var result made
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
		t := &step{u: x.u, op: o, before: s}
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

// edits returns the writes of an operation that calls no script.
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
		bad = t.inOrder()
	}
	if bad == "" {
		t.learn()
		bad = t.u.invariants(t.after)
	}
	return bad, nil
}

// merge adds the results of expanding a state.
func (x *Explorer) merge(number int32, result made) {
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

// within reports whether a state is within the limit of deliveries.
func (t *step) within() bool {
	for _, given := range t.claim.given {
		if token(given.receipt) > t.u.deliveries {
			return false
		}
	}
	return true
}

// A crash may tear the file in the middle of a script. Redis 7.0 ignores that script at the next
// restart, so the client sees an error and the state is as before. But the first commands of the
// script stay in the file, and the second restart applies them before all later writes. So between
// the torn call and the second restart, the file differs from memory, and then the file becomes the
// state. A pair has both.

// tear adds a pair for each call, and for each number of its commands that may be left.
func (x *Explorer) tear(number int32, moves []move) {
	s := decode(x.nodes[number].state)
	for _, m := range moves {
		effects := decodeEffects(m.effects)
		if len(effects) < 2 { // a single command cannot be torn
			continue
		}
		memory, ok := x.unanswered(number, m.op, moves)
		if !ok {
			continue
		}
		disk := s.redis().clone()
		for k, e := range effects {
			disk.apply(e)
			event := fmt.Sprintf("torn after %d of %d writes (%s): %s", k+1, len(effects), strings.Join(e, " "), m.op)
			file := disk.clone()
			if msg, whom := m.op.ends(s); msg != "" {
				file.set("~torn", msg, whom)
			}
			file.shift(lost(m.op))
			x.pair(memory, file, node{parent: number, event: x.intern(event), torn: "after torn " + m.op.kind, steps: 1})
		}
	}
}

// pair adds a state in memory with a different one on disk, and the restart after which the latter
// is the state.
func (x *Explorer) pair(memory int32, disk state, n node) {
	m := decode(x.nodes[memory].state)
	if slices.Equal(disk.redis(), m.redis()) {
		return
	}
	x.u.canonical(disk)
	n.state, n.memory = disk.encode(), memory
	number := x.add(n)
	if number < 0 || number != int32(len(x.nodes)-1) {
		return // out of bounds, or known
	}
	x.restart(number, m.ghost(), disk)
}

// expandPair applies the operations in memory, whose writes are also added to the file.
func (x *Explorer) expandPair(number int32) {
	n := x.nodes[number]
	if int(n.steps) > x.u.between {
		return
	}
	for _, m := range x.moves[n.memory] {
		if m.next < 0 {
			continue
		}
		x.pairSteps++
		disk := decode(n.state)
		for _, e := range decodeEffects(m.effects) {
			disk.apply(e)
		}
		disk.shift(m.op)
		x.pair(m.next, disk, node{parent: number, event: x.intern(m.op.String()), torn: n.torn, steps: n.steps + 1})
	}
}

func (x *Explorer) restart(pair int32, ghost, disk state) {
	const event = "second restart"
	s := disk.clone()
	for _, e := range ghost {
		s.set(e.key, e.field, e.value)
	}
	s.set("~torn", "restarted", "")
	if bad := x.u.invariants(s); bad != "" {
		t := &step{op: op{kind: "restart"}, before: decode(x.nodes[x.nodes[pair].memory].state), after: s}
		x.report(bad, pair, t)
		return
	}
	x.add(node{state: s.encode(), memory: -1, parent: pair, event: event, torn: x.nodes[pair].torn, steps: 1})
}

// lost is a call of cancel or reschedule that has not arrived.
func lost(o op) op {
	o.arg = map[bool]string{true: "lost"}[o.arg == "new" && o.kind != "claim"]
	return o
}

// unanswered returns the state in memory after a torn call. Callers of cancel and reschedule then
// make their next request; all other clients repeat the call until it is answered.
func (x *Explorer) unanswered(number int32, o op, moves []move) (memory int32, ok bool) {
	if o.kind != "cancel" && o.kind != "reschedule" {
		return number, true
	}
	for _, m := range moves {
		if m.op.kind == o.kind && m.op.number == o.number && m.op.target == o.target && m.op.arg == "lost" {
			return m.next, o.arg == "new" && m.next >= 0
		}
	}
	return number, true // it was lost before
}

// ends returns the message and the groups for which a call ends it. A torn call may have done so.
func (o op) ends(s state) (msg, whom string) {
	switch o.kind {
	case "ack", "discard":
		return o.msg, o.group
	case "cancel":
		return s.meant(o), "*"
	case "push":
		if holder := s.keyHolder(); o.arg == string(queue.ReplaceDuplicates) && holder != "" {
			return holder, "*"
		}
	}
	return "", ""
}
