package queue

import (
	"fmt"
	"time"

	"pgregory.net/rapid"
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

func (m *model) pushKeyed(rt *rapid.T) {
	policy := rapid.SampledFrom([]Duplicates{RejectDuplicates, IgnoreDuplicates, ReplaceDuplicates}).Draw(rt, "policy")
	key := rapid.SampledFrom([]string{"k", "l"}).Draw(rt, "key")
	m.number++
	id := fmt.Sprintf("%026d:%s", m.number, key)
	holder := m.holder(key)
	switch {
	case holder != "" && policy != ReplaceDuplicates:
	default:
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
	batch := Batch{Publisher: "p", Number: m.batch, Duplicates: policy, Calls: [][]Message{{{ID: id, Delay: time.Hour, Body: []byte("body")}}}}
	m.again(func() {
		refused, err := m.scene.partition.Push(m.scene.ctx(), batch)
		m.must(err)
		if (len(refused) == 1) != (holder != "" && policy == RejectDuplicates) {
			m.t.Fatalf("refused %v with holder %q and policy %s", refused, holder, policy)
		}
	})
}
