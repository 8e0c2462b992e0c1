package queue

import (
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// die makes a message a dead letter of a group. Its key is free, and leads to it until
// another message takes it.
func (m *model) die(id string, state *modelState) {
	state.place = "dead"
	if msg := m.messages[id]; msg.key != "" {
		m.lost[msg.key] = id
		msg.key = ""
	}
}

// end ends a message for all groups.
func (m *model) end(id string) {
	delete(m.messages, id)
	maps.DeleteFunc(m.lost, func(_, lost string) bool { return lost == id })
}

// lead is the message that a key leads to.
func (m *model) lead(key string) string {
	if holder := m.holder(key); holder != "" {
		return holder
	}
	return m.lost[key]
}

// standing is where a message is.
func (m *model) standing(id string) (s Standing) {
	msg := m.messages[id]
	if msg == nil {
		return s
	}
	s = Standing{ID: id, Scheduled: msg.scheduled, Groups: map[string]State{}}
	names := slices.Collect(maps.Keys(msg.groups))
	if !msg.scheduled {
		names = append(names, m.groups...)
	}
	for _, name := range names {
		state := msg.groups[name]
		switch {
		case state == nil:
			s.Groups[name] = StateDone
		case state.place == "queue" && state.count.seen+state.count.unsure > 0:
			s.Groups[name] = StateRetrying
		default:
			s.Groups[name] = map[string]State{"queue": StateWaiting, "unack": StateInDelivery, "dead": StateDead}[state.place]
		}
	}
	return s
}

// keyed draws a key whose message no retired group holds: forget frees the rest of that.
func (m *model) keyed(rt *rapid.T) (key, id string) {
	key = rapid.SampledFrom([]string{"k", "l"}).Draw(rt, "key")
	id = m.lead(key)
	if id != "" && m.heldByRetired(id) {
		rt.Skip("forget frees the rest of", id)
	}
	return key, id
}

func (m *model) cancel(rt *rapid.T) {
	key, id := m.keyed(rt)
	want := m.standing(id)
	got, err := m.scene.partition.Cancel(m.scene.ctx(), key)
	m.cancelled(key, id, want, got, err)
}

// cancelled is what a cancel has done; key is what leads to the message, "" if nothing does.
func (m *model) cancelled(key, id string, want, got Standing, err error) {
	require.Equal(m.t, want, got)
	m.last = nil
	if err == nil {
		delete(m.taken, key)
	}
	switch {
	case id == "":
		require.Equal(m.t, ErrNotFound, err)
	case want.some(StateDead) && !want.some(StateWaiting) && !want.some(StateRetrying) && !want.some(StateInDelivery):
		require.Equal(m.t, ErrDead, err)
	case want.some(StateDead):
		m.must(err)
		maps.DeleteFunc(m.messages[id].groups, func(_ string, s *modelState) bool { return s.place != "dead" })
	default:
		m.must(err)
		m.end(id)
	}
}

func (m *model) reschedule(rt *rapid.T) {
	key, id := m.keyed(rt)
	want := m.standing(id)
	got, err := m.scene.partition.Reschedule(m.scene.ctx(), key, time.Hour)
	m.rescheduled(want, got, err)
}

func (m *model) rescheduled(want, got Standing, err error) {
	require.Equal(m.t, want, got)
	m.last = nil
	switch {
	case want.Scheduled, want.some(StateWaiting), want.some(StateRetrying):
		m.must(err)
	case want.some(StateDead) && !want.some(StateInDelivery):
		require.Equal(m.t, ErrDead, err)
	case want.ID == "":
		require.Equal(m.t, ErrNotFound, err)
	default:
		require.Equal(m.t, errHeld, err)
	}
}
