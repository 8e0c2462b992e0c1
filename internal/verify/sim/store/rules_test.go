package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ms = 1000 // µs

// heard returns the notifications since the last call.
func (r *scene) heard() []Notice {
	list := r.notices
	r.notices = nil
	return list
}

func TestAPausedGroupGetsNothing(t *testing.T) {
	r := newScene(t, "g", "h")
	r.push(0, "a", "b")
	r.Pause(0, "g", 0)
	assert.Contains(t, r.heard(), Notice{Group: "g", Paused: true})
	claims := r.claim(0, "g", 10, 10)
	assert.Empty(t, claims.Messages)
	assert.Equal(t, int64(-1), claims.Wait, "the pause has no end")
	r.Pause(0, "", 2000)
	claims = r.claim(0, "h", 10, 10)
	assert.Empty(t, claims.Messages)
	assert.Equal(t, int64(2*second), claims.Wait, "until the pause of all ends")
	assert.Equal(t, []string{"a 1", "b 1"}, tokens(r.claim(2*second, "h", 10, 10)))

	r.heard()
	r.Resume(3*second, "g")
	r.Resume(3*second, "g")
	assert.Equal(t, []Notice{{Group: "g"}}, r.heard(), "once is enough")
	assert.Equal(t, []string{"a 1", "b 1"}, tokens(r.claim(3*second, "g", 10, 10)))
}

func TestTheLongerOfTwoPausesCounts(t *testing.T) {
	for _, c := range []struct{ all, group, want int64 }{{1000, 2000, 2 * second}, {2000, 1000, 2 * second}, {0, 1000, -1}, {1000, 0, -1}} {
		r := newScene(t, "g")
		r.push(0, "a")
		r.Pause(0, "", c.all)
		r.Pause(0, "g", c.group)
		assert.Equal(t, c.want, r.claim(0, "g", 1, 1).Wait)
	}
}

func TestAPauseThatReplacesAnotherWakes(t *testing.T) {
	r := newScene(t, "g")
	r.Pause(0, "g", 0)
	r.heard()
	r.Pause(0, "g", 1000)
	assert.Equal(t, []Notice{{Group: "g", Paused: true}, {Group: "g"}}, r.heard())
}

func TestARepeatedClaimIsAnsweredDuringAPause(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a")
	first := r.claim(0, "g", 1, 1)
	r.Pause(0, "g", 0)
	r.number--
	assert.Equal(t, tokens(first), tokens(r.claim(0, "g", 1, 1)))
}

func TestAGroupHoldsNoMoreThanItsLimit(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a", "b", "c")
	r.Limit(0, "g", Limits{MaxInFlight: 2}, 1)
	assert.Equal(t, []Notice{{Wait: 0}, {Group: "g"}}, r.heard(), "whoever limits a group wakes it")
	claims := r.claim(0, "g", 10, 10)
	assert.Equal(t, []string{"a 1", "b 1"}, tokens(claims))
	assert.Equal(t, int64(10*second), claims.Wait, "until a lease ends")
	missing, room := r.Ack("g", []string{"a"})
	assert.Empty(t, missing)
	assert.True(t, room)
	assert.Equal(t, []Notice{{Group: "g"}}, r.heard())
	_, room = r.Ack("g", []string{"b"})
	assert.False(t, room, "nobody waits any more")
	assert.Empty(t, r.heard())
	assert.Equal(t, []string{"c 1"}, tokens(r.claim(0, "g", 10, 10)))
}

func TestWhoeverMakesRoomWakes(t *testing.T) {
	for name, settle := range map[string]func(*scene, Delivery){
		"nack":    func(r *scene, d Delivery) { r.Nack(0, "g", 0, []Nack{{Delivery: d, Delay: 5000}}) },
		"bury":    func(r *scene, d Delivery) { r.Bury(0, "g", []Burial{{d, "bad"}}) },
		"release": func(r *scene, d Delivery) { r.Release(0, "g", []Release{{d, 5000, 0}}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t, "g")
			r.push(0, "a", "b")
			r.Limit(0, "g", Limits{MaxInFlight: 1}, 1)
			claims := r.claim(0, "g", 1, 1)
			require.Len(t, claims.Messages, 1)
			r.heard()
			settle(r, Delivery{"a", claims.Messages[0].Token})
			assert.Equal(t, Notice{Group: "g"}, r.heard()[0])
			assert.Zero(t, r.groups["g"].full)
			assert.Equal(t, []string{"b 1"}, tokens(r.claim(0, "g", 1, 1)))
		})
	}
}

func TestAGroupOverItsLimitIsWokenOnceThereIsRoom(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a", "b", "c")
	r.claim(0, "g", 3, 3)
	r.Limit(0, "g", Limits{MaxInFlight: 2}, 1)
	r.push(0, "d")
	require.Empty(t, r.claim(0, "g", 1, 1).Messages)
	_, room := r.Ack("g", []string{"a"})
	assert.False(t, room)
	_, room = r.Ack("g", []string{"b"})
	assert.True(t, room)
}

func TestCancelMakesRoom(t *testing.T) {
	r := newScene(t, "g")
	const id = "00000000000000000000000001:k"
	r.push(0, id, "z")
	r.Limit(0, "g", Limits{MaxInFlight: 1}, 1)
	require.Len(t, r.claim(0, "g", 1, 1).Messages, 1)
	r.heard()
	standing, ok := r.Cancel(id)
	assert.True(t, ok)
	assert.Equal(t, Standing{ID: id, Groups: map[string]State{"g": StateInDelivery}}, standing)
	assert.Equal(t, []Notice{{Group: "g"}}, r.heard())
}

func TestMessagesOfLostLeasesNeedNoRoom(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a", "b", "c", "d")
	require.Len(t, r.claim(0, "g", 3, 3).Messages, 3)
	r.Limit(0, "g", Limits{MaxInFlight: 2}, 1)
	assert.Equal(t, []string{"a 2/0/1", "b 2/0/1", "c 2/0/1"}, tokens(r.claim(11*second, "g", 10, 10)))
	r.groups["g"].attempts["a"] = Token{2, 3, 0} // spent
	claims := r.claim(22*second, "g", 10, 10)
	assert.Equal(t, []string{"b 3/0/2", "c 3/0/2"}, tokens(claims), "two are enough, though one is buried")
	assert.Len(t, claims.Buried, 1)
}

func TestAGroupClaimsNoFasterThanItsRate(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a", "b", "c", "d", "e")
	r.Limit(0, "g", Limits{Messages: 20, Per: second, Burst: 3}, 1)
	claims := r.claim(0, "g", 10, 10)
	assert.Equal(t, []string{"a 1", "b 1", "c 1"}, tokens(claims))
	assert.Equal(t, int64(50*ms), claims.Wait)
	assert.Empty(t, r.claim(49*ms, "g", 10, 10).Messages)
	assert.Equal(t, []string{"d 1"}, tokens(r.claim(50*ms, "g", 10, 10)))
	r.Limit(50*ms, "g", Limits{Messages: 1, Per: 3600 * second, Burst: 1}, 1)
	assert.Empty(t, r.claim(50*ms, "g", 10, 10).Messages)
	r.Limit(60*ms, "g", Limits{Messages: 100, Per: second, Burst: 1}, 1)
	assert.Equal(t, []string{"e 1"}, tokens(r.claim(70*ms, "g", 10, 10)), "a faster rate holds at once")
}

func TestWithLittleRoomNothingIsHeldAhead(t *testing.T) {
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

func TestNewPartitionsFollowTheRules(t *testing.T) {
	topic := NewTopic()
	p := topic.Partition(0)
	p.Register("g")
	p.Pause(0, "g", 0)
	p.Limit(0, "g", Limits{MaxInFlight: 3, Messages: 10, Per: second, Burst: 5}, 1)
	topic.Raise(2)
	for n, want := range []share{{2, 200 * ms, 3}, {1, 200 * ms, 2}} {
		assert.Equal(t, want, topic.Partition(n).shares["g"])
		assert.Contains(t, topic.Partition(n).pauses, "g")
		assert.True(t, topic.Partition(n).Registered("g"))
	}
}

func TestARetiredGroupIsForgottenAndRestored(t *testing.T) {
	r := newScene(t, "g", "h")
	r.push(0, "a", "b", "c")
	_, _, ok := r.Forget("g", 10)
	assert.False(t, ok, "it is not retired")
	r.claim(0, "h", 1, 1)
	r.claim(0, "g", 1, 1)
	r.Retire("g")
	assert.False(t, r.Restore("g"), "it still holds messages")
	_, known := r.Claim(0, Request{Group: "g", Consumer: "c", Number: 99, Limit: 1, Lease: 1000})
	assert.False(t, known)
	assert.False(t, r.Register("g"))
	r.push(0, "d")
	assert.Equal(t, []string{"b 1", "c 1", "d 1"}, tokens(r.claim(0, "h", 10, 10)))
	freed, done, _ := r.Forget("g", 10)
	assert.Empty(t, r.groups["g"].queue.list)
	assert.False(t, done)
	more, _, _ := r.Forget("g", 10)
	assert.Equal(t, []string{"b", "a"}, append(freed, more...), "what it had; the others were only h's")
	_, done, _ = r.Forget("g", 10)
	assert.True(t, done)
	assert.True(t, r.Stored("a"), "h still has it")
	assert.True(t, r.Restore("g"))
	assert.True(t, r.Register("g"))
	assert.Empty(t, r.claim(0, "g", 10, 10).Messages)
}

func TestWhatANackHasBuriedIsAnsweredAgain(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a", "b")
	claims := r.claim(0, "g", 2, 2)
	nack := []Nack{{Delivery: Delivery{"a", claims.Messages[0].Token}}}
	bury := []Burial{{Delivery{"b", claims.Messages[1].Token}, "bad"}}
	want := []Buried{{"a", "not acked in 1 deliveries"}}
	for range 2 {
		stale, buried := r.Nack(0, "g", 1, nack)
		assert.Empty(t, stale)
		assert.Equal(t, want, buried)
		assert.Empty(t, r.Bury(0, "g", bury))
	}
	bury[0].Reason = "worse"
	assert.Equal(t, []string{"b"}, r.Bury(0, "g", bury), "that was not what it was buried for")
	assert.Empty(t, r.Requeue(0, "g", 0, []string{"a"}))
	stale, buried := r.Nack(0, "g", 1, nack)
	assert.Equal(t, []string{"a"}, stale)
	assert.Empty(t, buried)
}
