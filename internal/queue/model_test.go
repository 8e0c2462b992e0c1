package queue

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

var modelSteps = flag.Int("model.steps", 3000, "how many random operations the model test makes")

// model is what the topic should hold. The scripts run on a real Redis; after each
// operation every message must be in exactly one state for each group and have a body.
type model struct {
	t        *rapid.T
	rig      *rig
	groups   []string
	messages map[string]*modelMessage
	number   int
	request  int64
	batch    int64
	last     func() // the last operation that may be sent again
}

// modelMessage is one message: where it is for each group.
type modelMessage struct {
	scheduled bool // not given to the groups yet
	key       string
	several   bool // given to more than one group
	groups    map[string]*modelState
}

type modelState struct {
	place    string // queue, unack or dead
	count    counts
	entry    bool // whether there is one
	issued   counts
	token    string   // of the last delivery
	stale    []string // tokens of earlier deliveries
	metadata string
}

// counts is an entry of attempts.
type counts struct{ fence, seen, unsure int }

func (c counts) String() string { return fmt.Sprintf("%d/%d/%d", c.fence, c.seen, c.unsure) }

// next is the entry of the next delivery.
func (c counts) next(lost bool) counts {
	if lost || c.fence > 1 || c.seen+c.unsure > 0 {
		c.unsure++
	}
	c.fence++
	return c
}

// confirmed is the entry once a handler has seen the delivery.
func (c counts) confirmed() counts {
	return counts{c.fence, c.seen + 1, max(0, c.unsure-1)}
}

// unseen is the entry once the delivery is given back.
func (c counts) unseen() counts { return counts{c.fence, c.seen, max(0, c.unsure-1)} }

func (c counts) exhausted(most int) (reason string) {
	switch {
	case most == 0 || c.seen+c.unsure < most:
		return ""
	case c.seen >= most:
		return fmt.Sprintf("not acked in %d deliveries", c.seen)
	default:
		return fmt.Sprintf("not acked in %d deliveries, and lost with its consumer %d times", c.seen, c.unsure)
	}
}

// TestModel drives random operations against the scripts and a model of them.
func TestModel(t *testing.T) {
	const perRun = 100
	server := redistest.Shared(t)
	client := server.Client(t)
	require.NoError(t, flag.Set("rapid.checks", fmt.Sprint(max(1, *modelSteps/perRun))))
	require.NoError(t, flag.Set("rapid.steps", fmt.Sprint(perRun)))
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		r := &rig{t: t, client: client, partition: newStore(t, client).Topic(fmt.Sprintf("%d-%d", time.Now().UnixNano(), run)).Partition(0), number: map[string]int64{}}
		m := &model{t: rt, rig: r, messages: map[string]*modelMessage{}}
		m.addGroup("g")
		rt.Repeat(map[string]func(*rapid.T){
			"":           func(*rapid.T) { m.check() },
			"push":       m.push,
			"push keyed": m.pushKeyed,
			"fall due":   m.fallDue,
			"claim":      m.claim,
			"ack":        m.ack,
			"nack":       m.nack,
			"release":    m.release,
			"extend":     m.extend,
			"bury":       m.bury,
			"expire":     m.expire,
			"stale":      m.stale,
			"requeue":    m.requeue,
			"discard":    m.discard,
			"cancel":     m.cancel,
			"add group":  func(rt *rapid.T) { m.addGroup(rapid.SampledFrom([]string{"h", "i"}).Draw(rt, "group")) },
			"send again": func(*rapid.T) {
				if m.last != nil {
					m.last()
				}
			},
		})
		keys := client.Keys(t.Context(), string(r.partition.names)+"*").Val()
		client.Del(t.Context(), keys...)
	})
}

func (m *model) must(err error) {
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) group(name string) *Group { return m.rig.partition.Group(name) }

func (m *model) addGroup(name string) {
	m.must(m.group(name).Register(m.rig.ctx()))
	if !slices.Contains(m.groups, name) {
		m.groups = append(m.groups, name)
	}
}

// again runs an operation that may be sent again later.
func (m *model) again(operation func()) {
	operation()
	m.last = operation
}

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
		_, err := m.rig.partition.Push(m.rig.ctx(), batch)
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
		m.messages[id] = &modelMessage{scheduled: true, key: key, groups: map[string]*modelState{}}
	}
	m.batch++
	batch := Batch{Publisher: "p", Number: m.batch, Duplicates: policy, Calls: [][]Message{{{ID: id, Delay: time.Hour, Body: []byte("body")}}}}
	m.again(func() {
		refused, err := m.rig.partition.Push(m.rig.ctx(), batch)
		m.must(err)
		if (len(refused) == 1) != (holder != "" && policy == RejectDuplicates) {
			m.t.Fatalf("refused %v with holder %q and policy %s", refused, holder, policy)
		}
	})
}

// fallDue makes everything scheduled and queued due, as time would.
func (m *model) fallDue(*rapid.T) {
	for _, key := range append([]string{m.rig.partition.names.key(scheduled)}, m.each(queueOf)...) {
		for i, id := range m.rig.client.ZRange(m.rig.ctx(), key, 0, -1).Val() {
			m.must(m.rig.client.ZAddXX(m.rig.ctx(), key, redis.Z{Score: float64(1000 + i), Member: id}).Err())
		}
	}
	m.last = nil // what comes again now may be due
}

func (m *model) each(k kind) []string {
	var keys []string
	for _, g := range m.groups {
		keys = append(keys, m.rig.partition.names.keyOf(k, g))
	}
	return keys
}

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
	m.again(func() {
		claims, err := m.group(name).Claim(m.rig.ctx(), request)
		m.must(err)
		if first == nil {
			first = &claims
			m.claimed(name, request, claims)
			return
		}
		for _, c := range claims.Messages {
			msg := m.messages[c.ID]
			if msg == nil {
				m.t.Fatalf("claimed %s, which is gone", c.ID)
			}
			if s := msg.groups[name]; s.place != "unack" || s.token != c.Token {
				m.t.Fatalf("the claim sent again got %s#%s, but it is in %s with %s", c.ID, c.Token, s.place, s.token)
			}
		}
		require.Equal(m.t, first.Buried, claims.Buried)
	})
}

// claimed notes what a claim got.
func (m *model) claimed(name string, request Request, claims Claims) {
	for _, b := range claims.Buried {
		state := m.messages[b.ID].groups[name]
		if state == nil || state.place != "queue" {
			m.t.Fatalf("%s is buried from nowhere", b.ID)
		}
		require.Equal(m.t, state.count.exhausted(request.MaxDeliveries), b.Reason)
		state.place = "dead"
		m.messages[b.ID].key = ""
	}
	for i, c := range claims.Messages {
		msg := m.messages[c.ID]
		if msg == nil {
			m.t.Fatalf("claimed %s, which is gone", c.ID)
		}
		if state := msg.groups[name]; state != nil && state.entry && c.Token != "2/0/0" && i >= request.Free {
			m.t.Fatalf("%s was claimed before, and got as number %d with %d free workers", c.ID, i+1, request.Free)
		}
		m.deliver(msg, name, c, false)
	}
	if claims.NeedsWorker && len(claims.Messages) < request.Free {
		m.t.Fatalf("%d messages for %d free workers, and no more", len(claims.Messages), request.Free)
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
		m.t.Fatalf("token %s of %s was given out before", c.Token, c.ID)
	}
	if string(c.Metadata) != state.metadata {
		m.t.Fatalf("%s has metadata %q, want %q", c.ID, c.Metadata, state.metadata)
	}
	if state.token != "" {
		state.stale = append(state.stale, state.token)
	}
	state.token, state.issued = c.Token, state.count
}

// fanOut learns from Redis which due messages the groups were given, which depends
// on the limit of the claim: all groups must have got them together.
func (m *model) fanOut() {
	left := m.rig.client.ZRange(m.rig.ctx(), m.rig.partition.names.key(scheduled), 0, -1).Val()
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
		delete(m.messages, id)
	}
}

func (m *model) ack(rt *rapid.T) {
	id, group, _ := m.pick(rt, "unack")
	m.finish(id, group)
	m.again(func() {
		_, err := m.group(group).Ack(m.rig.ctx(), done(id))
		m.must(err)
	})
}

func (m *model) nack(rt *rapid.T) {
	id, group, state := m.pick(rt, "unack")
	metadata := rapid.SampledFrom([]string{"", "changed", "more"}).Draw(rt, "metadata")
	most := rapid.SampledFrom([]int{0, 0, 3}).Draw(rt, "max")
	nack := Nack{Delivery{id, state.token}, time.Hour, []byte(metadata)}
	state.place, state.entry = "queue", true
	state.count = state.issued.confirmed()
	if metadata != "" {
		state.metadata = metadata
	}
	var want []Buried
	if reason := state.count.exhausted(most); reason != "" {
		want = []Buried{{id, reason}}
		state.place = "dead"
		m.messages[id].key = ""
	}
	first := true
	m.again(func() {
		_, buried, err := m.group(group).Nack(m.rig.ctx(), most, []Nack{nack})
		m.must(err)
		if first {
			require.Equal(m.t, want, buried)
		}
		first = false
	})
}

func (m *model) release(rt *rapid.T) {
	id, group, state := m.pick(rt, "unack")
	release := Release{Delivery{id, state.token}, time.UnixMilli(1000)}
	state.place, state.entry = "queue", true
	state.count = state.issued.unseen()
	m.again(func() {
		_, err := m.group(group).Release(m.rig.ctx(), []Release{release})
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
		_, err := m.group(group).Extend(m.rig.ctx(), time.Hour, []Held{held})
		m.must(err)
	})
}

func (m *model) bury(rt *rapid.T) {
	id, group, state := m.pick(rt, "unack")
	burial := Burial{Delivery{id, state.token}, "bad"}
	state.place = "dead"
	m.messages[id].key = ""
	m.again(func() {
		_, err := m.group(group).Bury(m.rig.ctx(), []Burial{burial})
		m.must(err)
	})
}

func (m *model) expire(rt *rapid.T) {
	id, group, state := m.pick(rt, "unack")
	state.place = "queue" // as good as: the next claim takes it
	m.must(m.rig.client.ZAddXX(m.rig.ctx(), m.rig.partition.names.keyOf(unackOf, group), redis.Z{Score: 1, Member: id}).Err())
	m.request++
	claims, err := m.group(group).Claim(m.rig.ctx(), Request{Consumer: "c", Number: m.request, Limit: 1, Free: 1, Lease: time.Hour})
	m.must(err)
	if len(claims.Messages) != 1 || claims.Messages[0].ID != id {
		m.t.Fatalf("claimed %v, want %s, whose lease ran out", deliveries(claims), id)
	}
	m.deliver(m.messages[id], group, claims.Messages[0], true)
	m.last = nil
}

// stale uses deliveries that are not the current ones.
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
		_, _, err := g.Nack(m.rig.ctx(), 1, []Nack{{Delivery: d, Metadata: []byte("stale")}})
		m.must(err)
		_, err = g.Release(m.rig.ctx(), []Release{{Delivery: d, DueAt: time.UnixMilli(1)}})
		m.must(err)
		_, err = g.Bury(m.rig.ctx(), []Burial{{Delivery: d, Reason: "stale"}})
		m.must(err)
		_, err = g.Extend(m.rig.ctx(), time.Hour, []Held{{Delivery: d, HandedOut: true}})
		m.must(err)
	}
}

func (m *model) requeue(rt *rapid.T) {
	id, group, state := m.pick(rt, "dead")
	state.place, state.entry = "queue", true
	state.count = counts{fence: state.count.fence}
	m.again(func() {
		_, err := m.group(group).Requeue(m.rig.ctx(), []string{id})
		m.must(err)
	})
}

func (m *model) discard(rt *rapid.T) {
	id, group, _ := m.pick(rt, "dead")
	m.finish(id, group)
	m.again(func() {
		_, err := m.group(group).Discard(m.rig.ctx(), []string{id})
		m.must(err)
	})
}

func (m *model) cancel(rt *rapid.T) {
	key := rapid.SampledFrom([]string{"k", "l"}).Draw(rt, "key")
	holder := m.holder(key)
	delete(m.messages, holder)
	err := m.rig.partition.Cancel(m.rig.ctx(), key)
	if holder == "" {
		require.ErrorIs(m.t, err, ErrNotFound)
	} else {
		m.must(err)
	}
	m.last = nil
}

// check compares what is in Redis with the model.
func (m *model) check() {
	want := map[string]string{}
	for id, msg := range m.messages {
		want["messages "+id] = "body"
		if msg.key != "" {
			want["keys "+msg.key] = id
		}
		if msg.scheduled {
			want["scheduled "+id] = ""
		}
		if msg.several {
			want["refs "+id] = strings.Join(slices.Sorted(maps.Keys(msg.groups)), ",")
		}
		for name, state := range msg.groups {
			want[state.place+":"+name+" "+id] = ""
			if state.place == "dead" {
				want["reasons:"+name+" "+id] = ""
			}
			if state.entry {
				want["attempts:"+name+" "+id] = state.count.String()
			}
			if state.metadata != "" {
				want["changed:"+name+" "+id] = state.metadata
			}
		}
	}
	require.Equal(m.t, want, m.snapshot())
}

// snapshot reads what the topic has in Redis, as "kind id" -> value: none for times
// and reasons.
func (m *model) snapshot() map[string]string {
	p := m.rig.partition.names
	ctx := m.rig.ctx()
	pipe := m.rig.client.Pipeline()
	sets := map[string]*redis.StringSliceCmd{"scheduled": pipe.ZRange(ctx, p.key(scheduled), 0, -1)}
	hashes := map[string]*redis.MapStringStringCmd{
		"messages": pipe.HGetAll(ctx, p.key(messages)),
		"keys":     pipe.HGetAll(ctx, p.key(messageKeys)),
		"refs":     pipe.HGetAll(ctx, p.key(refs)),
	}
	for _, g := range m.groups {
		sets["queue:"+g] = pipe.ZRange(ctx, p.keyOf(queueOf, g), 0, -1)
		sets["unack:"+g] = pipe.ZRange(ctx, p.keyOf(unackOf, g), 0, -1)
		sets["dead:"+g] = pipe.ZRange(ctx, p.keyOf(deadOf, g), 0, -1)
		sets["reasons:"+g] = pipe.HKeys(ctx, p.keyOf(reasonsOf, g))
		hashes["attempts:"+g] = pipe.HGetAll(ctx, p.keyOf(attemptsOf, g))
		hashes["changed:"+g] = pipe.HGetAll(ctx, p.keyOf(changedOf, g))
	}
	_, err := pipe.Exec(ctx)
	m.must(err)
	got := map[string]string{}
	for kind, reply := range sets {
		for _, id := range reply.Val() {
			got[kind+" "+id] = ""
		}
	}
	for kind, reply := range hashes {
		for id, value := range reply.Val() {
			if kind == "refs" {
				var names []string
				m.must(json.Unmarshal([]byte(value), &names))
				slices.Sort(names)
				value = strings.Join(names, ",")
			}
			got[kind+" "+id] = value
		}
	}
	return got
}
