package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These tests check the rules that TestModel in package queue seldom or never reaches. TestModel compares all
// others with the scripts.

const (
	ms     = 1000 // µs
	second = 1000 * ms
)

// scene is a partition with a group.
type scene struct {
	*Partition
	t       *testing.T
	number  int64
	notices []Notice
}

func newScene(t *testing.T, groups ...string) *scene {
	t.Helper()
	topic := NewTopic()
	r := &scene{Partition: topic.Partition(0), t: t}
	topic.Notify = func(_ int, n Notice) { r.notices = append(r.notices, n) }
	for _, g := range groups {
		r.Register(g)
	}
	return r
}

func (r *scene) push(now int64, ids ...string) {
	r.number++
	var call []Message
	for _, id := range ids {
		call = append(call, Message{ID: id, Body: []byte("body of " + id)})
	}
	r.Push(now, Batch{Publisher: "p", Number: r.number, Duplicates: "reject", Calls: [][]Message{call}})
}

func (r *scene) claim(now int64, group string, limit, free int) Claims {
	r.t.Helper()
	r.number++
	claims, known := r.Claim(now, Request{
		Group: group, Consumer: "c", Number: r.number, Limit: limit, Free: free,
		Lease: 10_000, MaxDeliveries: 3, Bytes: 1 << 20,
	})
	require.True(r.t, known)
	require.NoError(r.t, r.Check())
	return claims
}

func receipts(c Claims) []string {
	var list []string
	for _, m := range c.Messages {
		list = append(list, m.ID+" "+m.Receipt.String())
	}
	return list
}

// heard returns the notifications since the last call.
func (r *scene) heard() []Notice {
	list := r.notices
	r.notices = nil
	return list
}

func TestFreedCapacityWakesConsumers(t *testing.T) {
	for name, settle := range map[string]func(*scene, Delivery){
		"nack":    func(r *scene, d Delivery) { r.Nack(0, "g", 0, []Nack{{Delivery: d, Delay: 5000}}) },
		"bury":    func(r *scene, d Delivery) { r.Bury(0, "g", []Burial{{d, "bad"}}) },
		"cancel":  func(r *scene, d Delivery) { r.Cancel(d.ID) },
		"release": func(r *scene, d Delivery) { r.Release(0, "g", []Release{{d, 5000, 0}}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t, "g")
			r.push(0, "a", "b")
			r.Limit(0, "g", Limits{MaxInFlight: 1}, 1)
			claims := r.claim(0, "g", 1, 1)
			require.Len(t, claims.Messages, 1)
			r.heard()
			settle(r, Delivery{"a", claims.Messages[0].Receipt})
			assert.Equal(t, Notice{Group: "g"}, r.heard()[0])
			assert.Zero(t, r.groups["g"].atLimit)
			assert.Equal(t, []string{"b 1"}, receipts(r.claim(0, "g", 1, 1)))
		})
	}
}

func TestAGroupClaimsNoFasterThanItsRate(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a", "b", "c", "d", "e")
	r.Limit(0, "g", Limits{Messages: 20, Per: second, Burst: 3}, 1)
	claims := r.claim(0, "g", 10, 10)
	assert.Equal(t, []string{"a 1", "b 1", "c 1"}, receipts(claims))
	assert.Equal(t, int64(50*ms), claims.Wait)
	assert.Empty(t, r.claim(49*ms, "g", 10, 10).Messages)
	assert.Equal(t, []string{"d 1"}, receipts(r.claim(50*ms, "g", 10, 10)))
	r.Limit(50*ms, "g", Limits{Messages: 1, Per: 3600 * second, Burst: 1}, 1)
	assert.Empty(t, r.claim(50*ms, "g", 10, 10).Messages)
	r.Limit(60*ms, "g", Limits{Messages: 100, Per: second, Burst: 1}, 1)
	assert.Equal(t, []string{"e 1"}, receipts(r.claim(70*ms, "g", 10, 10)), "a faster rate holds at once")
}

func TestNothingIsPrefetchedNearALimit(t *testing.T) {
	for _, c := range []struct {
		limits      Limits
		want        int
		needsWorker bool
	}{
		{Limits{MaxInFlight: 39}, 3, true},
		{Limits{MaxInFlight: 40}, 10, false},
		{Limits{Messages: 1, Per: second, Burst: 39}, 3, true},
		{Limits{Messages: 1, Per: second, Burst: 40}, 10, false},
		{Limits{MaxInFlight: 2}, 2, false},
	} {
		r := newScene(t, "g")
		r.push(0, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
		r.Limit(0, "g", c.limits, 1)
		claims := r.claim(0, "g", 10, 3)
		assert.Len(t, claims.Messages, c.want, "%+v", c.limits)
		assert.Equal(t, c.needsWorker, claims.NeedsWorker, "%+v", c.limits)
	}
}

func TestNewPartitionsInheritPausesAndLimits(t *testing.T) {
	topic := NewTopic()
	p := topic.Partition(0)
	p.Register("g")
	p.Pause(0, "g", 0)
	p.Limit(0, "g", Limits{MaxInFlight: 3, Messages: 10, Per: second, Burst: 5}, 1)
	topic.RaisePartitions(2)
	for n, want := range []share{{2, 200 * ms, 3}, {1, 200 * ms, 2}} {
		assert.Equal(t, want, topic.Partition(n).shares["g"])
		assert.Contains(t, topic.Partition(n).pauses, "g")
		assert.True(t, topic.Partition(n).Registered("g"))
	}
}

func TestARetiredGroupCanBeRestoredOnceItIsEmpty(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a")
	r.claim(0, "g", 1, 1)
	r.Retire("g")
	_, done, _ := r.Forget("g", 10)
	assert.False(t, done)
	assert.False(t, r.Restore("g"), "it may hold more")
	_, done, _ = r.Forget("g", 10)
	assert.True(t, done)
	assert.True(t, r.Restore("g"))
}

func TestAMessageThatKillsItsConsumersIsDeadLettered(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a")
	now := int64(0)
	for n := range 4 {
		claims := r.claim(now, "g", 1, 1)
		require.Len(t, claims.Messages, 1, "claim %d", n+1)
		now += 11 * second
	}
	claims := r.claim(now, "g", 1, 1)
	assert.Equal(t, []Buried{{"a", "not acked in 0 deliveries, and lost with its consumer 3 times"}}, claims.Buried)
}

// TestAClaimThatRepairsATurnClaimsAgainAtOnce, even if no message waits for the turn: more turns may be broken.
func TestAClaimThatRepairsATurnClaimsAgainAtOnce(t *testing.T) {
	const ordered = "00000000000000000000000001=1,a"
	for name, c := range map[string]struct {
		limits Limits
		free   int
		want   Claims
	}{
		"without limits":        {Limits{}, 1, Claims{Wait: 0}},
		"with limits":           {Limits{MaxInFlight: 1, Messages: 7, Per: 3 * second, Burst: 4}, 1, Claims{Wait: 0}},
		"with no worker free":   {Limits{MaxInFlight: 1}, 0, Claims{Wait: 0, NeedsWorker: true}},
		"with its rate used up": {Limits{Messages: 1, Per: 60 * second, Burst: 1}, 1, Claims{Wait: 60 * second}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t, "g")
			halting := c.limits
			halting.HaltsKeys = true
			r.Limit(0, "g", halting, 1)
			r.push(0, ordered)
			claims := r.claim(0, "g", 1, 1)
			require.Len(t, claims.Messages, 1)
			r.Bury(0, "g", []Burial{{Delivery{ordered, claims.Messages[0].Receipt}, "bad"}})
			assert.Equal(t, int64(-1), r.claim(0, "g", 1, 1).Wait, "the dead message halts its key")

			r.Limit(0, "g", c.limits, 1)
			claims = r.claim(0, "g", 1, c.free)
			assert.Equal(t, c.want.Wait, claims.Wait)
			assert.Equal(t, c.want.NeedsWorker, claims.NeedsWorker)
			assert.Equal(t, int64(-1), r.claim(0, "g", 1, 1).Wait, "nothing is left to heal")
		})
	}
}
