package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// explorer visits all reachable states of a universe, breadth first, so the first sequence
// of operations that leads to a violation is a shortest one.
type explorer struct {
	u       *universe
	runners []*runner
	verify  int // compares every nth state with Redis; 0 for none

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

// node is a state or, between a torn call and a restart, a pair of the state in the file
// and the state in memory (explore_torn_test.go).
type node struct {
	state  string // of a pair: what is in the file
	memory int32  // of a pair: the node of the state in memory; else -1
	parent int32
	event  string // how it came from its parent
	torn   string // after which call was torn
	steps  int16  // since the torn call or the restart
}

// move is a transition: what it wrote, and where it led.
type move struct {
	op      op
	effects string
	next    int32 // -1: out of bounds
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

// run explores until it finds nothing new, or reaches a bound.
func (x *explorer) run(ctx context.Context) error {
	x.start = time.Now()
	x.add(node{state: x.u.first().encode(), memory: -1, parent: -1})
	for x.level, x.next = x.next, nil; len(x.level) > 0 && !x.enough(); x.level, x.next = x.next, nil {
		if err := x.expandLevel(ctx); err != nil {
			return err
		}
		x.depth++
	}
	x.elapsed = time.Since(x.start)
	return nil
}

func (x *explorer) enough() bool {
	return time.Since(x.start) > x.limit || x.stopAtFirst && len(x.violations) > 0
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

// expandLevel makes all transitions from the nodes of a level: first from states, which
// needs Redis, then from pairs, which follow the known moves of their state in memory.
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

func (x *explorer) intern(text string) string {
	if known, ok := x.strings[text]; ok {
		return known
	}
	x.strings[text] = text
	return text
}
