package admin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// TestALateGroupIsReportedWithItsCause, as far as it can be known from its counts.
func TestALateGroupIsReportedWithItsCause(t *testing.T) {
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	waiting := GroupStats{Group: "mail", State: GroupActive, Counts: Counts{Ready: 19006}, OldestReady: at.Add(-19 * time.Minute)}
	of := func(change func(*GroupStats)) GroupStats {
		g := waiting
		change(&g)
		return g
	}
	for _, test := range []struct {
		name  string
		group GroupStats
		cause Cause
		text  string
	}{
		{
			"without a consumer", waiting, CauseNoConsumer,
			"mail: 19,006 messages are due and wait, the oldest for 19m; no consumer of group mail is alive",
		},
		{"paused", of(func(g *GroupStats) { g.Pause = &redisdelay.Pause{By: "anna"} }), CausePaused, "is paused by anna until resumed"},
		{"at a limit", of(func(g *GroupStats) { g.LiveConsumers, g.AtLimit = 1, true }), CauseLimit, "a limit of group mail is reached"},
		{"idle consumers", of(func(g *GroupStats) { g.LiveConsumers = 3 }), CauseSlow, "its 3 consumers are idle"},
		{"slow", of(func(g *GroupStats) { g.LiveConsumers, g.InDelivery = 3, 3 }), CauseSlow, "; its 3 consumers cannot keep up"},
		{"slow below a limit", of(func(g *GroupStats) {
			g.LiveConsumers, g.InDelivery, g.Limits = 1, 3, &redisdelay.GroupLimits{Rate: redisdelay.Rate{Messages: 1}}
		}), CauseSlow, "; its 1 consumer cannot keep up"},
		{
			"halted", of(func(g *GroupStats) {
				g.LiveConsumers, g.HaltedKeys, g.Counts, g.OldestReady = 3, 1, Counts{InLine: 7}, time.Time{}
			}),
			CauseHalted, "mail: 7 messages are due and wait; 1 ordering key is halted by a dead message",
		},
		{"at work", of(func(g *GroupStats) { g.LiveConsumers, g.OldestReady = 1, at.Add(-time.Second) }), "", ""},
		{"retired", of(func(g *GroupStats) { g.State = GroupRetired }), "", ""},
		{"idle", GroupStats{Group: "mail", State: GroupActive}, "", ""},
	} {
		late := TopicStats{At: at, Groups: []GroupStats{test.group}}.LateGroups()
		if test.cause == "" {
			assert.Empty(t, late, test.name)
			continue
		}
		if assert.Len(t, late, 1, test.name) {
			assert.Equal(t, test.cause, late[0].Cause, test.name)
			assert.Contains(t, late[0].String(), test.text, test.name)
		}
	}
	late := TopicStats{At: at, Counts: Counts{Due: 2}, OldestDue: at.Add(-time.Minute)}.LateGroups()
	assert.Equal(t, []LateGroup{{
		Unclaimed: 2, Overdue: time.Minute, Cause: CauseNoGroup, Text: "2 messages are due and wait, the oldest for 1m; no group is registered",
	}}, late)
}
