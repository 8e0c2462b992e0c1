// Package explore visits all states that the scripts of package queue can reach in small universes. A universe has a few messages,
// groups and consumers. Their calls arrive in any order, repeated and late, while time passes, records are lost or the append-only
// file is torn. The real scripts run on a real Redis, each on any state.
//
// An Explorer (search.go) applies all possible operations (operations.go, redis.go) to each state
// (state.go), and records what the clients know then (ghost.go). It checks each answer and its effect
// (truth.go, claims.go), and each new state (invariants.go).
package explore

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Universe limits what is explored.
type Universe struct {
	Name       string
	groups     []string
	consumers  []string
	messages   int
	keyed      bool
	orderKeys  []string // the ordering keys of the messages, if they have any
	window     bool     // keys stay in use until their windows end
	deliveries int      // the highest token
	most       int      // max deliveries of the groups
	limit      int      // messages that each group may hold at once, 0 for any number
	halts      bool     // a dead message halts its ordering key
	policies   []string // on duplicates
	verbs      []string // cancel, reschedule
	changes    bool     // nacks may leave changed metadata
	decides    bool     // handlers may defer and bury
	joins      bool     // a claim may name the groups at the time when the messages became due
	asks       bool     // publishers may read the outcome of a batch
	damage     bool     // registrations and records may be lost
	between    int      // torn files: operations until the second restart at most, 0 for no tearing
	after      int      // operations after it at most
}

var allPolicies = []string{string(queue.RejectDuplicates), string(queue.IgnoreDuplicates), string(queue.ReplaceDuplicates)}

// Universes returns all universes that are explored.
func Universes() []*Universe {
	g, gh, a, ab := []string{"g"}, []string{"g", "h"}, []string{"a"}, []string{"a", "b"}
	reject, both := allPolicies[:1], []string{"cancel", "reschedule"}
	return []*Universe{
		{Name: "one message", groups: g, consumers: ab, messages: 1, deliveries: 5, policies: reject, changes: true, decides: true},
		{Name: "one message, at most 2 deliveries", groups: g, consumers: ab, messages: 1, deliveries: 5, most: 2, policies: reject, decides: true},
		{Name: "room for one of two messages", groups: g, consumers: a, messages: 2, deliveries: 2, limit: 1, policies: reject},
		{Name: "room for one, two consumers", groups: g, consumers: ab, messages: 2, deliveries: 1, most: 1, limit: 1, policies: reject},
		{Name: "two messages", groups: g, consumers: a, messages: 2, deliveries: 2, policies: reject},
		{Name: "a batch of unknown outcome", groups: g, consumers: a, messages: 2, asks: true, deliveries: 1, policies: reject},
		{Name: "a keyed batch of unknown outcome", groups: g, consumers: a, messages: 2, keyed: true, asks: true, deliveries: 1, policies: allPolicies},
		{Name: "two groups", groups: gh, consumers: a, messages: 1, deliveries: 2, policies: reject, changes: true},
		{Name: "a group joins later", groups: gh, consumers: a, messages: 2, deliveries: 1, policies: reject, joins: true},
		{Name: "a key", groups: g, consumers: a, messages: 2, keyed: true, deliveries: 2, policies: allPolicies, verbs: both},
		{Name: "a window", groups: g, consumers: a, messages: 2, keyed: true, window: true, deliveries: 1, policies: allPolicies, verbs: both[:1]},
		{Name: "a key, two groups", groups: gh, consumers: a, messages: 1, keyed: true, deliveries: 1, policies: reject, verbs: both},
		{Name: "damage, a key", groups: g, consumers: a, messages: 1, keyed: true, deliveries: 2, policies: allPolicies, verbs: both, damage: true},
		{Name: "damage, a window", groups: g, consumers: a, messages: 1, keyed: true, window: true, deliveries: 1, policies: allPolicies, verbs: both[:1], damage: true},
		{Name: "damage, two groups", groups: gh, consumers: a, messages: 1, keyed: true, deliveries: 1, policies: reject, verbs: both[:1], changes: true, damage: true},
		{Name: "ordering keys", groups: g, consumers: a, messages: 3, orderKeys: []string{"x", "x", "y"}, deliveries: 1, policies: reject},
		{Name: "an ordering key", groups: g, consumers: a, messages: 2, orderKeys: []string{"x", "x"}, deliveries: 1, policies: reject},
		{Name: "an ordering key, two consumers", groups: g, consumers: ab, messages: 2, orderKeys: []string{"x", "x"}, deliveries: 2, policies: reject, decides: true},
		{Name: "an ordering key, at most 1 delivery", groups: g, consumers: a, messages: 3, orderKeys: []string{"x", "x", "x"}, deliveries: 2, most: 1, policies: reject},
		{Name: "an ordering key, cancelled", groups: g, consumers: a, messages: 2, orderKeys: []string{"x", "x"}, deliveries: 2, policies: reject, verbs: both},
		{Name: "an ordering key that halts", groups: g, consumers: a, messages: 2, orderKeys: []string{"x", "x"}, halts: true, deliveries: 2, most: 1, policies: reject, decides: true},
		{Name: "torn, an ordering key", groups: g, consumers: a, messages: 2, orderKeys: []string{"x", "x"}, deliveries: 2, policies: reject, between: 3, after: 3},
		{Name: "torn, an ordering key, at most 1 delivery", groups: g, consumers: a, messages: 2, orderKeys: []string{"x", "x"}, deliveries: 2, most: 1, policies: reject, decides: true, between: 2, after: 3},
		{Name: "torn, an ordering key, cancelled", groups: g, consumers: a, messages: 2, orderKeys: []string{"x", "x"}, deliveries: 1, policies: reject, verbs: both, between: 2, after: 3},
		{Name: "torn, one message", groups: g, consumers: ab, messages: 1, deliveries: 2, policies: reject, decides: true, between: 5, after: 5},
		{Name: "torn, at most 1 delivery", groups: g, consumers: a, messages: 1, deliveries: 3, most: 1, policies: reject, between: 5, after: 5},
		{Name: "torn, two messages", groups: g, consumers: a, messages: 2, deliveries: 1, policies: reject, between: 3, after: 3},
		{Name: "torn, room for one", groups: g, consumers: a, messages: 2, deliveries: 1, limit: 1, policies: reject, between: 3, after: 3},
		{Name: "torn, two groups", groups: gh, consumers: a, messages: 1, deliveries: 2, policies: reject, between: 3, after: 3},
		{Name: "torn, a group joins later", groups: gh, consumers: a, messages: 1, deliveries: 2, policies: reject, between: 1, after: 5},
		{Name: "torn, a key", groups: g, consumers: a, messages: 1, keyed: true, deliveries: 2, policies: reject, verbs: both, between: 4, after: 4},
		{Name: "torn, a key taken twice", groups: g, consumers: a, messages: 2, keyed: true, deliveries: 1, policies: allPolicies, verbs: both[:1], between: 2, after: 1},
		{Name: "torn, a window", groups: g, consumers: a, messages: 1, keyed: true, window: true, deliveries: 1, policies: reject, verbs: both[:1], between: 3, after: 3},
	}
}

func (u *Universe) msgs() []string {
	list := make([]string, u.messages)
	for i := range list {
		list[i] = fmt.Sprintf("#%d", i+1)
	}
	return list
}

// orderKeyOf returns the ordering key of a message, as turns has it; "" if it has none.
func (u *Universe) orderKeyOf(msg string) string {
	if i := slices.Index(u.msgs(), msg); i >= 0 && len(u.orderKeys) > 0 {
		return fmt.Sprintf("%d,%s", len(u.orderKeys[i]), u.orderKeys[i])
	}
	return ""
}

// haltingLimits are the limits of a group that halts ordering keys and has no other limit.
const haltingLimits = `0 0.000000 0 0 {"halts":true}`

// first returns the state before the first operation.
func (u *Universe) first() state {
	s := state{}
	for _, g := range u.groups {
		if u.limit > 0 {
			s.set("settings", "limits:"+g, fmt.Sprintf("%d 0.000000 0 %d {}", u.limit, u.limit))
		}
		if u.halts {
			s.set("settings", "limits:"+g, haltingLimits)
		}
	}
	return s
}

// leaseOf returns the class of leases of a consumer's claims; for "", of heartbeats.
func (u *Universe) leaseOf(consumer string) string {
	return fmt.Sprintf("%s%d", future, 2+slices.Index(u.consumers, consumer))
}

// windowMs returns the deduplication window of the pushes.
func (u *Universe) windowMs() string {
	if u.window {
		return strconv.Itoa(longDelay)
	}
	return "0"
}
