package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// violation is a broken rule, and where it was found.
type violation struct {
	text string
	node int32 // where it was found
	op   string
	step *step
}

// report keeps the first violation of each kind for each operation.
func (x *Explorer) report(bad string, number int32, t *step) {
	kind, _, _ := strings.Cut(bad, ":")
	kind += " (" + strings.TrimSpace(t.op.kind+" "+x.nodes[number].torn) + ")"
	if _, ok := x.violations[kind]; !ok {
		x.violations[kind] = violation{bad, number, t.op.String(), t}
	}
}

// path lists the events that lead to a node.
func (x *Explorer) path(number int32) (events []string) {
	for ; number > 0; number = x.nodes[number].parent {
		events = append(events, x.nodes[number].event)
	}
	slices.Reverse(events)
	return events
}

// Violations describes the broken rules, the first of each kind for each operation.
func (x *Explorer) Violations() []string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(x.violations)) {
		list = append(list, x.violations[kind].describe(x))
	}
	return list
}

func (v violation) describe(x *Explorer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", v.text)
	for i, event := range append(x.path(v.node), v.op) {
		fmt.Fprintf(&b, "  %2d. %s\n", i+1, event)
	}
	fmt.Fprintf(&b, "  before:\n%s\n  after:\n%s", v.step.before, v.step.after)
	return b.String()
}

// Figures summarizes what was explored.
func (x *Explorer) Figures() string {
	whole := "all"
	if x.bounded {
		whole = "NOT all"
	}
	return fmt.Sprintf("%s: %d states (%s), %d transitions, %d steps with a torn file, depth %d, %.1f s, %.0f transitions/s",
		x.u.Name, len(x.nodes), whole, x.transitions, x.pairSteps, x.depth, x.elapsed.Seconds(), float64(x.transitions)/x.elapsed.Seconds())
}
