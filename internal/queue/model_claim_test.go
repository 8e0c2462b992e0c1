package queue

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func (m *model) claim(rt *rapid.T) {
	name := rapid.SampledFrom(m.groups).Draw(rt, "group")
	limit := rapid.IntRange(1, 5).Draw(rt, "limit")
	m.request++
	request := Request{
		Consumer: "c", Number: m.request, Limit: limit, Lease: time.Hour,
		Free:          rapid.IntRange(0, limit).Draw(rt, "free"),
		MaxDeliveries: rapid.SampledFrom([]int{0, 0, 3}).Draw(rt, "max"),
	}
	var first *Claims
	room := m.roomFor(name)
	m.again(func() {
		claims, err := m.group(name).Claim(m.scene.ctx(), request)
		m.must(err)
		if first == nil {
			first = &claims
			m.claimed(name, request, claims)
			if m.isPaused(name) && len(claims.Messages)+len(claims.Buried) > 0 {
				m.t.Fatalf("the paused group %s got %v", name, deliveries(claims))
			}
			if len(claims.Messages) > room {
				m.t.Fatalf("group %s had room for %d and got %v", name, room, deliveries(claims))
			}
			return
		}
		for _, c := range claims.Messages {
			msg := m.messages[c.ID]
			if msg == nil {
				m.t.Fatalf("claimed %s, which is gone", c.ID)
			}
			if s := msg.groups[name]; s.place != "unack" || s.token != c.Token {
				m.t.Fatalf("the repeated claim got %s#%s, but it is in %s with %s", c.ID, c.Token, s.place, s.token)
			}
		}
		require.Equal(m.t, first.Buried, claims.Buried)
	})
}

// claimed records what a claim got.
func (m *model) claimed(name string, request Request, claims Claims) {
	for _, b := range claims.Buried {
		state := m.messages[b.ID].groups[name]
		if state == nil || state.place != "queue" {
			m.t.Fatalf("%s is buried, but it did not wait", b.ID)
		}
		require.Equal(m.t, state.count.exhausted(request.MaxDeliveries), b.Reason)
		m.die(b.ID, state)
	}
	for i, c := range claims.Messages {
		msg := m.messages[c.ID]
		if msg == nil {
			m.t.Fatalf("claimed %s, which is gone", c.ID)
		}
		if state := msg.groups[name]; state != nil && state.entry && c.Token != "2/0/0" && i >= request.Free {
			m.t.Fatalf("%s was claimed before, but is number %d of a claim for %d free workers", c.ID, i+1, request.Free)
		}
		m.deliver(msg, name, c, false)
	}
	if claims.NeedsWorker && len(claims.Messages) < request.Free {
		m.t.Fatalf("got %d messages and needs a worker, though %d are free", len(claims.Messages), request.Free)
	}
	m.fanOut()
}

func (m *model) deliver(msg *modelMessage, name string, c Claimed, lost bool) {
	state := msg.groups[name]
	if state == nil {
		state = &modelState{place: "queue"}
		msg.groups[name] = state
	}
	if state.place != "queue" {
		m.t.Fatalf("claimed %s from %s", c.ID, state.place)
	}
	want := "1"
	if state.entry || lost {
		state.count, state.entry = state.count.next(lost), true
		want = state.count.String()
	} else {
		state.count = counts{1, 0, 0}
	}
	state.place = "unack"
	if c.Token != want || c.Fence != int64(state.count.fence) || c.Attempt != max(1, state.count.seen+state.count.unsure) {
		m.t.Fatalf("%s#%s is attempt %d with fence %d, want token %s", c.ID, c.Token, c.Attempt, c.Fence, want)
	}
	if slices.Contains(state.stale, c.Token) || state.token == c.Token {
		m.t.Fatalf("token %s of %s is not new", c.Token, c.ID)
	}
	if string(c.Metadata) != state.metadata {
		m.t.Fatalf("%s has metadata %q, want %q", c.ID, c.Metadata, state.metadata)
	}
	if state.token != "" {
		state.stale = append(state.stale, state.token)
	}
	state.token, state.issued = c.Token, state.count
}

// fanOut reads from Redis which due messages the groups were given, which depends on the
// limit of the claim. All groups must have got them together.
func (m *model) fanOut() {
	left := m.scene.client.ZRange(m.scene.ctx(), m.scene.partition.Key(script.Scheduled, ""), 0, -1).Val()
	for id, msg := range m.messages {
		if !msg.scheduled || slices.Contains(left, id) {
			continue
		}
		msg.scheduled, msg.several = false, len(m.groups) > 1
		for _, name := range m.groups {
			if msg.groups[name] == nil {
				msg.groups[name] = &modelState{place: "queue"}
			}
		}
	}
}
