package queue

import (
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// pick draws a message that is in one of the places for one of the groups.
func (m *model) pick(rt *rapid.T, place string) (id, group string, state *modelState) {
	var choices []string
	for id, msg := range m.messages {
		for name, state := range msg.groups {
			if state.place == place {
				choices = append(choices, id+" "+name)
			}
		}
	}
	if len(choices) == 0 {
		rt.Skip("none in", place)
	}
	sort.Strings(choices)
	id, group, _ = strings.Cut(rapid.SampledFrom(choices).Draw(rt, place), " ")
	return id, group, m.messages[id].groups[group]
}

// finish ends a message for a group.
func (m *model) finish(id, group string) {
	delete(m.messages[id].groups, group)
	if len(m.messages[id].groups) == 0 {
		m.end(id)
	}
}

func (m *model) ack(rt *rapid.T) {
	id, group, _ := m.pick(rt, "unack")
	m.finish(id, group)
	m.again(func() {
		_, err := m.group(group).Ack(m.scene.ctx(), done(id))
		m.must(err)
	})
}

// relay adds the message to a stream of the group once, however often it is called.
func (m *model) relay(rt *rapid.T) {
	id, group, state := m.pick(rt, "unack")
	entry, stream := entryOf(id, state.token), Stream{Key: m.scene.stream().Key + "/" + group}
	before := m.scene.client.XLen(m.scene.ctx(), stream.Key).Val()
	m.finish(id, group)
	m.again(func() {
		_, err := m.group(group).Relay(m.scene.ctx(), stream, []Entry{entry})
		m.must(err)
	})
	require.Equal(m.t, before+1, m.scene.client.XLen(m.scene.ctx(), stream.Key).Val())
}

func (m *model) nack(rt *rapid.T) {
	id, group, state := m.pick(rt, "unack")
	metadata := rapid.SampledFrom([]string{"", "changed", "more"}).Draw(rt, "metadata")
	most := rapid.SampledFrom([]int{0, 0, 3}).Draw(rt, "max")
	nack := Nack{Delivery: Delivery{id, state.token}, Delay: time.Hour, Metadata: []byte(metadata)}
	state.place, state.entry = "queue", true
	state.count = state.issued.confirmed()
	if metadata != "" {
		state.metadata = metadata
	}
	reason := state.count.exhausted(most)
	switch rapid.SampledFrom([]string{"fail", "fail", "defer", "bury"}).Draw(rt, "decision") {
	case "defer":
		nack.Deferred, reason = true, ""
		state.count = state.issued.unseen()
	case "bury":
		nack.Reason, reason = "hopeless", "hopeless"
	}
	var want []Buried
	if reason != "" {
		want = []Buried{{id, reason}}
		m.die(id, state)
	}
	m.again(func() {
		_, buried, err := m.group(group).Nack(m.scene.ctx(), most, []Nack{nack})
		m.must(err)
		require.Equal(m.t, want, buried)
	})
}

func (m *model) release(rt *rapid.T) {
	id, group, state := m.pick(rt, "unack")
	release := Release{Delivery{id, state.token}, time.UnixMilli(1000), 0}
	state.place, state.entry = "queue", true
	state.count = state.issued.unseen()
	m.again(func() {
		_, err := m.group(group).Release(m.scene.ctx(), []Release{release})
		m.must(err)
	})
}

func (m *model) extend(rt *rapid.T) {
	id, group, state := m.pick(rt, "unack")
	held := Held{Delivery{id, state.token}, rapid.Bool().Draw(rt, "handed out")}
	if held.HandedOut {
		state.count, state.entry = state.issued.confirmed(), true
	}
	m.again(func() {
		_, err := m.group(group).Extend(m.scene.ctx(), Heartbeat{Lease: time.Hour}, []Held{held})
		m.must(err)
	})
}

func (m *model) bury(rt *rapid.T) {
	id, group, state := m.pick(rt, "unack")
	burial := Burial{Delivery{id, state.token}, "bad"}
	m.die(id, state)
	m.again(func() {
		_, err := m.group(group).Bury(m.scene.ctx(), []Burial{burial})
		m.must(err)
	})
}

func (m *model) expire(rt *rapid.T) {
	id, group, state := m.pick(rt, "unack")
	if m.retired[group] || m.expired[group] || m.isPaused(group) {
		rt.Skip("nobody claims for", group)
	}
	if !slices.Contains(m.groups, group) {
		m.addGroup(group, 0) // it was restored, and a claim would register it
	}
	state.place = "queue" // in effect: the next claim takes it
	m.must(m.scene.client.ZAddXX(m.scene.ctx(), m.scene.partition.Key(script.UnackOf, group), redis.Z{Score: 1, Member: id}).Err())
	m.request++
	claims, err := m.group(group).Claim(m.scene.ctx(), Request{Consumer: "c", Number: m.request, Limit: 1, Free: 1, Lease: time.Hour})
	m.must(err)
	if len(claims.Messages) != 1 || claims.Messages[0].ID != id {
		m.t.Fatalf("claimed %v, want %s, whose lease had run out", deliveries(claims), id)
	}
	m.deliver(m.messages[id], group, claims.Messages[0], true)
	m.last = nil
}

// stale uses deliveries that are not current.
func (m *model) stale(rt *rapid.T) {
	place := rapid.SampledFrom([]string{"queue", "unack", "dead"}).Draw(rt, "place")
	id, group, state := m.pick(rt, place)
	tokens := slices.Clone(state.stale)
	if place != "unack" && state.token != "" {
		tokens = append(tokens, state.token)
	}
	g := m.group(group)
	for _, token := range tokens {
		d := Delivery{id, token}
		for _, nack := range []Nack{{}, {Deferred: true}, {Reason: "stale"}} {
			nack.Delivery, nack.Metadata = d, []byte("stale")
			_, _, err := g.Nack(m.scene.ctx(), 1, []Nack{nack})
			m.must(err)
		}
		_, err := g.Release(m.scene.ctx(), []Release{{Delivery: d, DueAt: time.UnixMilli(1)}})
		m.must(err)
		_, err = g.Bury(m.scene.ctx(), []Burial{{Delivery: d, Reason: "stale"}})
		m.must(err)
		_, err = g.Extend(m.scene.ctx(), Heartbeat{Lease: time.Hour}, []Held{{Delivery: d, HandedOut: true}})
		m.must(err)
	}
}

func (m *model) requeue(rt *rapid.T) {
	id, group, state := m.pick(rt, "dead")
	state.place, state.entry = "queue", true
	state.count = counts{fence: max(1, state.count.fence)} // a message that a person buried may have had no claim
	m.again(func() {
		_, err := Requeue(m.scene.ctx(), m.group(group), ever, []string{id})
		m.must(err)
	})
}

func (m *model) discard(rt *rapid.T) {
	id, group, _ := m.pick(rt, "dead")
	m.finish(id, group)
	m.again(func() {
		_, err := Discard(m.scene.ctx(), m.group(group), ever, []string{id})
		m.must(err)
	})
}
