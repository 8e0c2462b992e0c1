package queue

import (
	"fmt"
	"maps"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func (m *model) push(rt *rapid.T) {
	count := rapid.IntRange(1, 3).Draw(rt, "count")
	var call []Message
	for range count {
		m.number++
		call = append(call, Message{ID: fmt.Sprintf("%026d", m.number), Delay: time.Hour, Body: []byte("body")})
		m.messages[call[len(call)-1].ID] = &modelMessage{scheduled: true, groups: map[string]*modelState{}}
	}
	m.batch++
	batch := Batch{Publisher: "p", Number: m.batch, Duplicates: RejectDuplicates, Calls: [][]Message{call}}
	m.again(func() {
		_, err := m.scene.partition.Push(m.scene.ctx(), batch)
		m.must(err)
	})
}

func (m *model) holder(key string) string {
	for id, msg := range m.messages {
		if msg.key == key {
			return id
		}
	}
	return ""
}

// onlyTaken lists the keys that only a window keeps in use.
func (m *model) onlyTaken() (keys []string) {
	for _, key := range []string{"k", "l"} {
		if m.taken[key] && m.holder(key) == "" {
			keys = append(keys, key)
		}
	}
	return keys
}

func (m *model) pushKeyed(rt *rapid.T, keys []string) {
	if len(keys) == 0 {
		rt.Skip("no such key")
	}
	policy := rapid.SampledFrom([]Duplicates{RejectDuplicates, IgnoreDuplicates, ReplaceDuplicates}).Draw(rt, "policy")
	key := rapid.SampledFrom(keys).Draw(rt, "key")
	window := rapid.SampledFrom([]time.Duration{0, time.Hour, time.Hour}).Draw(rt, "window")
	m.number++
	id := fmt.Sprintf("%026d:%s", m.number, key)
	holder, inUse := m.holder(key), m.holder(key) != "" || m.taken[key]
	maps.DeleteFunc(m.taken, func(_ string, lasts bool) bool { return !lasts })
	switch {
	case inUse && policy != ReplaceDuplicates:
	default:
		if window > 0 {
			m.taken[key] = true
		}
		if holder != "" {
			m.messages[holder].key = ""
			if m.messages[holder].scheduled {
				delete(m.messages, holder)
			}
		}
		delete(m.lost, key)
		m.messages[id] = &modelMessage{scheduled: true, key: key, groups: map[string]*modelState{}}
	}
	m.batch++
	batch := Batch{Publisher: "p", Number: m.batch, Duplicates: policy, Window: window, Calls: [][]Message{{{ID: id, Delay: time.Hour, Body: []byte("body")}}}}
	m.again(func() {
		refused, err := m.scene.partition.Push(m.scene.ctx(), batch)
		m.must(err)
		if (len(refused) == 1) != (inUse && policy == RejectDuplicates) {
			m.t.Fatalf("refused %v with holder %q, key in use %v and policy %s", refused, holder, inUse, policy)
		}
	})
}

// endWindow ends the window of a key, as time would.
func (m *model) endWindow(rt *rapid.T) {
	key := rapid.SampledFrom([]string{"k", "l"}).Draw(rt, "key")
	if _, is := m.taken[key]; !is || m.holder(key) != "" {
		rt.Skip("only a message may hold", key)
	}
	m.taken[key] = false
	m.must(m.scene.client.ZAddXX(m.scene.ctx(), m.scene.partition.Key(script.Taken, ""), redis.Z{Score: 1000, Member: key}).Err())
}
