package chaos

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheCheckerFindsEveryFault(t *testing.T) {
	published := Event{Kind: Published, UUID: "a", Outcome: OK, Due: 100, At: 50}
	delivered := Event{Kind: Delivered, UUID: "a", ID: "1", Group: "g", Attempt: 1, Claimed: 100, At: 110}
	handled := Event{Kind: Handled, UUID: "a", Group: "g", At: 120}
	acked := Event{Kind: Acked, ID: "1", Group: "g", At: 130}
	change := func(e Event, to func(*Event)) Event {
		to(&e)
		return e
	}
	tests := map[string]struct {
		events []Event
		groups []string
		left   []string
		want   Report
	}{
		"all is well": {events: []Event{published, delivered, handled, acked}},
		"lost":        {events: []Event{published}, want: Report{Lost: []string{"a"}}},
		"lost after a delivery that was not handled": {events: []Event{published, delivered}, want: Report{Lost: []string{"a"}}},
		"lost by one group":                          {events: []Event{published, delivered, handled}, groups: []string{"g", "h"}, want: Report{Lost: []string{"a"}}},
		"stuck":                                      {events: []Event{published, delivered}, left: []string{"a", "a"}, want: Report{Stuck: []string{"a"}}},
		"not stored is not lost":                     {events: []Event{change(published, func(e *Event) { e.Outcome = Failed })}},
		"unknown is not lost":                        {events: []Event{change(published, func(e *Event) { e.Outcome = Unknown })}},
		"unknown may be delivered":                   {events: []Event{change(published, func(e *Event) { e.Outcome = Unknown }), delivered, handled}},
		"certain failure must not be delivered": {
			events: []Event{change(published, func(e *Event) { e.Outcome = Failed }), delivered, handled},
			want:   Report{Unexpected: []string{"a"}},
		},
		"never published": {events: []Event{delivered}, want: Report{Unexpected: []string{"a"}}},
		"early":           {events: []Event{published, change(delivered, func(e *Event) { e.At = 99 }), handled}, want: Report{Early: []string{"a"}}},
		"stored twice": {
			events: []Event{published, delivered, change(delivered, func(e *Event) { e.ID = "2" }), handled},
			want:   Report{StoredTwice: []string{"a"}, Redelivered: 1},
		},
		"resurrected": {
			events: []Event{published, delivered, handled, acked, change(delivered, func(e *Event) { e.Claimed, e.At = 131, 140 })},
			want:   Report{Resurrected: []string{"a"}, Redelivered: 1},
		},
		"claimed before the ack, delivered after it": {
			events: []Event{published, delivered, handled, acked, change(delivered, func(e *Event) { e.Claimed, e.At = 129, 140 })},
			want:   Report{Redelivered: 1},
		},
		"two groups": {
			events: []Event{
				published, delivered, handled, acked,
				change(delivered, func(e *Event) { e.Group, e.Claimed, e.At = "h", 150, 160 }),
				change(handled, func(e *Event) { e.Group = "h" }),
			},
			groups: []string{"g", "h"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var h History
			for _, e := range test.events {
				h.Add(e)
			}
			if test.groups == nil {
				test.groups = []string{"g"}
			}
			got := h.Check(test.groups, test.left, nil)
			assert.Equal(t, test.want.Failures() == "", got.Failures() == "", "%s", got.Failures())
			got.Published, got.Deliveries = nil, 0
			assert.Equal(t, test.want, got)
		})
	}
}
