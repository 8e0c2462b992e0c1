package queue

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

var (
	exploreFull   = flag.Bool("explore", false, "explore the scripts in full, which takes minutes")
	exploreLimit  = flag.Duration("explore.limit", time.Minute, "how long to explore one universe")
	exploreStates = flag.Bool("explore.states", false, "print the states before and after a violation")
)

const mostStates = 400_000 // of one universe

var allPolicies = []string{string(RejectDuplicates), string(IgnoreDuplicates), string(ReplaceDuplicates)}

func universes() []*universe {
	g, gh, a, ab := []string{"g"}, []string{"g", "h"}, []string{"a"}, []string{"a", "b"}
	reject, both := allPolicies[:1], []string{"cancel", "reschedule"}
	return []*universe{
		{name: "one message", groups: g, consumers: ab, messages: 1, deliveries: 5, policies: reject, changes: true, decides: true},
		{name: "one message, at most 2 deliveries", groups: g, consumers: ab, messages: 1, deliveries: 5, most: 2, policies: reject, decides: true},
		{name: "room for one of two messages", groups: g, consumers: a, messages: 2, deliveries: 2, limit: 1, policies: reject},
		{name: "room for one, two consumers", groups: g, consumers: ab, messages: 2, deliveries: 1, most: 1, limit: 1, policies: reject},
		{name: "two messages", groups: g, consumers: a, messages: 2, deliveries: 2, policies: reject},
		{name: "two groups", groups: gh, consumers: a, messages: 1, deliveries: 2, policies: reject, changes: true},
		{name: "two groups, two messages", groups: gh, consumers: a, messages: 2, deliveries: 1, policies: reject},
		{name: "a group joins later", groups: gh, consumers: a, messages: 2, deliveries: 1, policies: reject, joins: true},
		{name: "a key", groups: g, consumers: a, messages: 2, keyed: true, deliveries: 2, policies: allPolicies, verbs: both},
		{name: "a window", groups: g, consumers: a, messages: 2, keyed: true, window: true, deliveries: 1, policies: allPolicies, verbs: both[:1]},
		{name: "a key, two groups", groups: gh, consumers: a, messages: 1, keyed: true, deliveries: 1, policies: reject, verbs: both},
		{name: "damage, a key", groups: g, consumers: a, messages: 1, keyed: true, deliveries: 2, policies: allPolicies, verbs: both, damage: true},
		{name: "damage, a key taken twice", groups: g, consumers: a, messages: 2, keyed: true, deliveries: 1, policies: []string{"replace"}, damage: true},
		{name: "damage, a window", groups: g, consumers: a, messages: 1, keyed: true, window: true, deliveries: 1, policies: allPolicies, verbs: both[:1], damage: true},
		{name: "damage, two groups", groups: gh, consumers: a, messages: 1, keyed: true, deliveries: 1, policies: reject, verbs: both[:1], changes: true, damage: true},
		{name: "torn, one message", groups: g, consumers: ab, messages: 1, deliveries: 2, policies: reject, decides: true, between: 5, after: 5},
		{name: "torn, at most 1 delivery", groups: g, consumers: a, messages: 1, deliveries: 3, most: 1, policies: reject, between: 5, after: 5},
		{name: "torn, two messages", groups: g, consumers: a, messages: 2, deliveries: 1, policies: reject, between: 3, after: 3},
		{name: "torn, room for one", groups: g, consumers: a, messages: 2, deliveries: 1, limit: 1, policies: reject, between: 3, after: 3},
		{name: "torn, two groups", groups: gh, consumers: a, messages: 1, deliveries: 2, policies: reject, between: 3, after: 3},
		{name: "torn, a group joins later", groups: gh, consumers: a, messages: 1, deliveries: 2, policies: reject, between: 1, after: 5},
		{name: "torn, a key", groups: g, consumers: a, messages: 1, keyed: true, deliveries: 2, policies: reject, verbs: both, between: 4, after: 4},
		{name: "torn, a key taken twice", groups: g, consumers: a, messages: 2, keyed: true, deliveries: 1, policies: allPolicies, verbs: both[:1], between: 2, after: 1},
		{name: "torn, a window", groups: g, consumers: a, messages: 1, keyed: true, window: true, deliveries: 1, policies: reject, verbs: both[:1], between: 3, after: 3},
	}
}

// TestExplore visits all states of small universes with the real scripts.
func TestExplore(t *testing.T) {
	client := redistest.New(t).Client(t)
	for _, u := range universes() {
		t.Run(u.name, func(t *testing.T) {
			u.states = mostStates
			if !*exploreFull {
				u.states = 500
			}
			x := newExplorer(client, exploreScripts(), u)
			x.verify, x.limit = 20, *exploreLimit
			require.NoError(t, x.run(t.Context()))
			t.Log(x.figures())
			for _, kind := range sortedKeys(x.violations) {
				t.Errorf("%s", x.violations[kind].describe(x))
			}
		})
	}
}
