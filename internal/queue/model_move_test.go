package queue

import (
	"slices"

	"pgregory.net/rapid"
)

// move takes a message out of its place, to another topic. It arrives there, or comes back.
func (m *model) move(rt *rapid.T) {
	arrived := rapid.Bool().Draw(rt, "arrived")
	place := rapid.SampledFrom([]Place{InScheduled, InQueue, InDead}).Draw(rt, "place")
	g, seen := m.group(""), Seen{}
	if place == InScheduled {
		if seen = m.pickScheduled(rt); arrived {
			m.end(seen.ID)
		}
	} else {
		id, group, _ := m.pick(rt, string(place))
		g, seen = m.group(group), Seen{ID: id}
		if arrived || m.retired[group] || m.expired[group] {
			m.finish(id, group)
		}
	}
	d := Departure{Batch: NewBatch(), To: "other", Place: place, Messages: []Seen{seen}}
	m.again(func() {
		ids, err := g.Depart(m.scene.ctx(), d)
		m.must(err)
		m.must(g.EndMove(m.scene.ctx(), d.Batch, []Ending{{seen.ID, arrived}}))
		if len(ids) > 0 && !slices.Equal(ids, []string{seen.ID}) {
			m.t.Fatalf("departed: %q", ids)
		}
	})
}
