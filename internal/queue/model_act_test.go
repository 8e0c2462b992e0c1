package queue

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"
)

// either draws a message that no retired group holds: forget frees the rest of that. It may be
// one that never was.
func (m *model) either(rt *rapid.T) string {
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(m.messages)), m.heldByRetired)
	return rapid.SampledFrom(append(ids, "unknown")).Draw(rt, "id")
}

// keyTo is the key that leads to a message; "" if none does.
func (m *model) keyTo(id string) string {
	if len(id) > 27 && m.lead(id[27:]) == id {
		return id[27:]
	}
	return ""
}

func (m *model) cancelID(rt *rapid.T) {
	id := m.either(rt)
	key, want, is := m.keyTo(id), m.standing(id), id
	if want.ID == "" {
		is = ""
	}
	got, err := m.scene.partition.CancelID(m.scene.ctx(), id)
	m.cancelled(key, is, want, got, err)
}

func (m *model) rescheduleID(rt *rapid.T) {
	id := m.either(rt)
	want := m.standing(id)
	got, err := m.scene.partition.RescheduleID(m.scene.ctx(), id, m.later())
	m.rescheduled(want, got, err)
}

func (m *model) later() int64 { return m.scene.now().UnixMilli() + 3_600_000 }

// pickScheduled draws a scheduled message, as it is seen.
func (m *model) pickScheduled(rt *rapid.T) Seen {
	var ids []string
	for id, msg := range m.messages {
		if msg.scheduled {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		rt.Skip("none is scheduled")
	}
	slices.Sort(ids)
	return m.seen(m.scene.partition.names.key(scheduled), rapid.SampledFrom(ids).Draw(rt, "scheduled"))
}

func (m *model) seen(key, id string) Seen {
	score, err := m.scene.client.ZScore(m.scene.ctx(), key, id).Result()
	m.must(err)
	return Seen{id, fmt.Sprintf("%.0f", score)}
}

func (m *model) withdraw(rt *rapid.T) {
	if rapid.Bool().Draw(rt, "for a group") {
		id, group, _ := m.pick(rt, "queue")
		seen := m.seen(m.scene.partition.names.keyOf(queueOf, group), id)
		m.finish(id, group)
		m.again(func() { m.must(errOf(m.group(group).Withdraw(m.scene.ctx(), InQueue, []Seen{seen}))) })
		return
	}
	seen := m.pickScheduled(rt)
	if key := m.messages[seen.ID].key; key != "" {
		delete(m.taken, key)
	}
	m.end(seen.ID)
	m.again(func() { m.must(errOf(m.group("").Withdraw(m.scene.ctx(), InScheduled, []Seen{seen}))) })
}

func (m *model) retime(rt *rapid.T) {
	due := m.later()
	if rapid.Bool().Draw(rt, "in scheduled") {
		seen := m.pickScheduled(rt)
		m.again(func() { m.must(errOf(m.group("g").Retime(m.scene.ctx(), InScheduled, due, []Seen{seen}))) })
		return
	}
	id, group, _ := m.pick(rt, "queue")
	seen := m.seen(m.scene.partition.names.keyOf(queueOf, group), id)
	m.again(func() { m.must(errOf(m.group(group).Retime(m.scene.ctx(), InQueue, due, []Seen{seen}))) })
}

func (m *model) buryAny(rt *rapid.T) {
	id, group, state := m.pick(rt, rapid.SampledFrom([]string{"queue", "unack"}).Draw(rt, "place"))
	m.die(id, state)
	m.again(func() { m.must(errOf(m.group(group).BuryAny(m.scene.ctx(), "by a person", []string{id}))) })
}
