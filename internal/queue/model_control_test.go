package queue

import (
	"maps"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// allGroups are the groups that the model may have.
var allGroups = []string{"g", "h", "i"}

func (m *model) isPaused(name string) bool { return m.paused[name] || m.paused[""] }

func (m *model) pause(rt *rapid.T) {
	name := rapid.SampledFrom([]string{"", "g", "h"}).Draw(rt, "group")
	m.paused[name] = true
	m.must(m.group(name).told(m.scene.ctx(), pauseScript, name, 0, "{}", "channel", "follow"))
	m.last = nil
}

func (m *model) resume(rt *rapid.T) {
	if len(m.paused) == 0 {
		rt.Skip("none is paused")
	}
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(m.paused))).Draw(rt, "group")
	delete(m.paused, name)
	m.again(func() { m.must(m.group(name).told(m.scene.ctx(), resumeScript, name, "channel", "follow")) })
}

// limit gives a group room for a few messages, or lifts its limit.
func (m *model) limit(rt *rapid.T) {
	name := rapid.SampledFrom([]string{"g", "h"}).Draw(rt, "group")
	l := Limits{MaxInFlight: rapid.IntRange(0, 3).Draw(rt, "most")}
	if !slices.Contains(m.groups, name) {
		rt.Skip("there is no group", name)
	}
	m.limits[name] = l.MaxInFlight
	m.again(func() {
		_, err := m.scene.partition.limit(m.scene.ctx(), name, l, 1, "")
		m.must(err)
	})
}

// inDelivery is how many messages a group holds.
func (m *model) inDelivery(name string) int {
	n := 0
	for _, msg := range m.messages {
		if state := msg.groups[name]; state != nil && state.place == "unack" {
			n++
		}
	}
	return n
}

// roomFor is how many messages a group may claim; those of lost leases are not among them.
func (m *model) roomFor(name string) int {
	if m.limits[name] == 0 {
		return MaxMessages
	}
	return max(0, m.limits[name]-m.inDelivery(name))
}

func (m *model) retire(rt *rapid.T) {
	if len(m.groups) < 2 {
		rt.Skip("the last group stays")
	}
	name := rapid.SampledFrom(m.groups).Draw(rt, "group")
	m.remove(name)
	m.retired[name] = true
	m.again(func() { m.must(m.group(name).retire(m.scene.ctx(), RetireIdle)) })
}

func (m *model) remove(name string) {
	m.groups = slices.DeleteFunc(slices.Clone(m.groups), func(other string) bool { return other == name })
}

// endGroup ends a group as its only subscriber does.
func (m *model) endGroup(rt *rapid.T) {
	if len(m.groups) < 2 {
		rt.Skip("the last group stays")
	}
	name := rapid.SampledFrom(m.groups).Draw(rt, "group")
	m.remove(name)
	m.expired[name] = true
	m.again(func() { m.must(m.group(name).retire(m.scene.ctx(), retireEnded)) })
}

// expireGroup looks at a group that has had no live consumer for long.
func (m *model) expireGroup(rt *rapid.T) {
	name := rapid.SampledFrom(allGroups).Draw(rt, "group")
	registered := slices.Contains(m.groups, name)
	if len(m.groups) < 2 && registered {
		rt.Skip("the last group stays")
	}
	want := "gone"
	switch {
	case registered && m.expires[name]:
		m.scene.over(m.scene.partition, name)
		m.remove(name)
		m.expired[name] = true
		want = "expired"
	case m.expired[name]:
		want = "expired"
	default:
		delete(m.expires, name)
	}
	for range 2 { // a copy changes nothing
		require.Equal(m.t, want, m.scene.look(m.group(name)))
	}
	m.last = nil
}

// freed records that all of a group that has expired is freed.
func (m *model) freed(name string) {
	if !m.expired[name] {
		return
	}
	for id, msg := range m.messages {
		if msg.groups[name] != nil {
			m.finish(id, name)
		}
	}
	m.last = nil
	m.forgotten(name)
}

func (m *model) forgotten(name string) {
	delete(m.paused, name)
	delete(m.expired, name)
	delete(m.expires, name)
	delete(m.limits, name)
}

// forget frees what a retired group has in the first set that is not empty.
func (m *model) forget(rt *rapid.T) {
	name := rapid.SampledFrom(allGroups).Draw(rt, "group")
	freed, err := m.group(name).forget(m.scene.ctx())
	m.last = nil
	if !m.retired[name] && !m.expired[name] {
		require.ErrorIs(m.t, err, errNotRetired)
		return
	}
	m.must(err)
	for _, place := range []string{"queue", "unack", "dead"} {
		var ids []string
		for id, msg := range m.messages {
			if state := msg.groups[name]; state != nil && state.place == place {
				ids = append(ids, id)
			}
		}
		if len(ids) > 0 {
			require.Len(m.t, ids, freed)
			for _, id := range ids {
				m.finish(id, name)
			}
			return
		}
	}
	require.Zero(m.t, freed)
	m.forgotten(name)
}

func (m *model) restore(rt *rapid.T) {
	name := rapid.SampledFrom(allGroups).Draw(rt, "group")
	for _, msg := range m.messages {
		if m.retired[name] && msg.groups[name] != nil {
			rt.Skip("forget has not freed all of", name)
		}
	}
	if m.retired[name] {
		delete(m.retired, name)
		m.forgotten(name)
	}
	m.must(m.group(name).restore(m.scene.ctx()))
	m.last = nil
}

// heldByRetired tells whether a retired group still has a message.
func (m *model) heldByRetired(id string) bool {
	for name := range m.messages[id].groups {
		if m.retired[name] || m.expired[name] {
			return true
		}
	}
	return false
}
