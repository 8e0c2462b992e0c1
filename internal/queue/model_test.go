package queue

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

var modelSteps = flag.Int("model.steps", 3000, "how many random operations the model test makes")

// model is what the topic should hold. The scripts run on a real Redis. After each
// operation, every message must have a body and one state for each group.
type model struct {
	t        *rapid.T
	scene    *scene
	groups   []string        // registered
	retired  map[string]bool // not restored since
	expired  map[string]bool // not all is freed yet
	expires  map[string]bool // somebody may look whether it has expired
	paused   map[string]bool // "": all of them
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

// confirmed is the entry after a handler has seen the delivery.
func (c counts) confirmed() counts {
	return counts{c.fence, c.seen + 1, max(0, c.unsure-1)}
}

// unseen is the entry after the delivery was given back.
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

// TestModel runs random operations on the scripts and on a model of them.
func TestModel(t *testing.T) {
	const perRun = 100
	server := redistest.Shared(t)
	client := server.Client(t)
	require.NoError(t, flag.Set("rapid.checks", fmt.Sprint(max(1, *modelSteps/perRun))))
	require.NoError(t, flag.Set("rapid.steps", fmt.Sprint(perRun)))
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		r := &scene{t: t, client: client, partition: newStore(t, client).Topic(fmt.Sprintf("%d-%d", time.Now().UnixNano(), run)).Partition(0), number: map[string]int64{}}
		m := &model{t: rt, scene: r, messages: map[string]*modelMessage{}, retired: map[string]bool{}, paused: map[string]bool{}, expired: map[string]bool{}, expires: map[string]bool{}}
		m.addGroup("g", 0)
		rt.Repeat(map[string]func(*rapid.T){
			"":             func(*rapid.T) { m.check() },
			"push":         m.push,
			"push keyed":   m.pushKeyed,
			"fall due":     m.fallDue,
			"claim":        m.claim,
			"ack":          m.ack,
			"nack":         m.nack,
			"release":      m.release,
			"extend":       m.extend,
			"bury":         m.bury,
			"expire":       m.expire,
			"stale":        m.stale,
			"requeue":      m.requeue,
			"discard":      m.discard,
			"cancel":       m.cancel,
			"pause":        m.pause,
			"resume":       m.resume,
			"retire":       m.retire,
			"forget":       m.forget,
			"restore":      m.restore,
			"expire group": m.expireGroup,
			"end":          m.end,
			"add group": func(rt *rapid.T) {
				m.addGroup(rapid.SampledFrom([]string{"h", "i"}).Draw(rt, "group"), rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(rt, "lasts"))
			},
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

func (m *model) group(name string) *Group { return m.scene.partition.Group(name) }

func (m *model) addGroup(name string, lasts time.Duration) {
	g := m.group(name)
	g.lasts = lasts
	err := g.Register(m.scene.ctx())
	if m.retired[name] {
		require.ErrorIs(m.t, err, ErrGroupRetired)
		return
	}
	m.must(err)
	m.freed(name)
	m.expires[name] = lasts > 0
	if !slices.Contains(m.groups, name) {
		m.groups = append(m.groups, name)
	}
}

// again runs an operation that may be sent again later.
func (m *model) again(operation func()) {
	operation()
	m.last = operation
}

// fallDue makes all scheduled and queued messages due, as time would.
func (m *model) fallDue(*rapid.T) {
	for _, key := range append([]string{m.scene.partition.names.key(scheduled)}, m.each(queueOf)...) {
		for i, id := range m.scene.client.ZRange(m.scene.ctx(), key, 0, -1).Val() {
			m.must(m.scene.client.ZAddXX(m.scene.ctx(), key, redis.Z{Score: float64(1000 + i), Member: id}).Err())
		}
	}
	m.last = nil // a repeated operation may find messages due now
}

func (m *model) each(k kind) []string {
	var keys []string
	for _, g := range m.groups {
		keys = append(keys, m.scene.partition.names.keyOf(k, g))
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
		claims, err := m.group(name).Claim(m.scene.ctx(), request)
		m.must(err)
		if first == nil {
			first = &claims
			m.claimed(name, request, claims)
			if m.isPaused(name) && len(claims.Messages)+len(claims.Buried) > 0 {
				m.t.Fatalf("the paused group %s got %v", name, deliveries(claims))
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
		state.place = "dead"
		m.messages[b.ID].key = ""
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
	left := m.scene.client.ZRange(m.scene.ctx(), m.scene.partition.names.key(scheduled), 0, -1).Val()
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
