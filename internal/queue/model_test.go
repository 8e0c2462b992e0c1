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

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

var modelSteps = flag.Int("model.steps", 3000, "how many random operations the model test makes")

// model is what the topic should hold. The scripts run on a real Redis. After each
// operation, every message must have a body and one state for each group.
type model struct {
	t        *rapid.T
	scene    *scene
	groups   []string          // registered
	lost     map[string]string // key -> the dead letter that it leads to
	retired  map[string]bool   // not restored since
	paused   map[string]bool   // "": all of them
	limits   map[string]int    // how many messages in delivery; 0: any number
	expired  map[string]bool   // not all is freed yet
	expires  map[string]bool   // somebody may look whether it has expired
	messages map[string]*modelMessage
	taken    map[string]bool // message key -> whether its window lasts
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

func newModel(t *rapid.T, r *scene) *model {
	return &model{
		t: t, scene: r, messages: map[string]*modelMessage{}, taken: map[string]bool{},
		retired: map[string]bool{}, paused: map[string]bool{}, limits: map[string]int{}, lost: map[string]string{},
		expired: map[string]bool{}, expires: map[string]bool{},
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
		m := newModel(rt, r)
		m.addGroup("g", 0)
		rt.Repeat(m.operations())
		keys := client.Keys(t.Context(), string(r.partition.names)+"*").Val()
		client.Del(t.Context(), keys...)
	})
}

func (m *model) operations() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":             func(*rapid.T) { m.check() },
		"push":         m.push,
		"push keyed":   func(rt *rapid.T) { m.pushKeyed(rt, []string{"k", "l"}) },
		"push taken":   func(rt *rapid.T) { m.pushKeyed(rt, m.onlyTaken()) },
		"fall due":     m.fallDue,
		"claim":        m.claim,
		"ack":          m.ack,
		"relay":        m.relay,
		"nack":         m.nack,
		"release":      m.release,
		"extend":       m.extend,
		"bury":         m.bury,
		"expire":       m.expire,
		"stale":        m.stale,
		"requeue":      m.requeue,
		"discard":      m.discard,
		"cancel":       m.cancel,
		"end window":   m.endWindow,
		"reschedule":   m.reschedule,
		"cancel id":    m.cancelID,
		"retime id":    m.rescheduleID,
		"withdraw":     m.withdraw,
		"retime":       m.retime,
		"bury any":     m.buryAny,
		"pause":        m.pause,
		"resume":       m.resume,
		"limit":        m.limit,
		"retire":       m.retire,
		"forget":       m.forget,
		"restore":      m.restore,
		"expire group": m.expireGroup,
		"end group":    m.endGroup,
		"add group": func(rt *rapid.T) {
			m.addGroup(rapid.SampledFrom([]string{"h", "i"}).Draw(rt, "group"), rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(rt, "lasts"))
		},
		"send again": func(*rapid.T) {
			if m.last != nil {
				m.last()
			}
		},
	}
}

func (m *model) must(err error) {
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) group(name string) *Group { return m.scene.partition.Group(name) }

func (m *model) addGroup(name string, lasts time.Duration) {
	g := m.group(name)
	g.terms.Lasts = lasts
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
