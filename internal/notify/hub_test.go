package notify

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAllListenersOfANodeShareAConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		one, l1 := s.listen("a0")
		other, l2 := s.listen("a1")
		same, l3 := s.listen("a1")
		far, l4 := s.listen("b0")
		for _, handler := range []*fakeHandler{one, other, same, far} {
			assert.Equal(t, []string{"open"}, handler.received())
		}
		late, l5 := s.listen("a0")
		assert.Equal(t, []string{"open"}, late.received(), "it need not wait for an answer")
		s.a.send("a1", "x")
		s.b.send("b0", "y")
		assert.Equal(t, []string{"x"}, other.received())
		assert.Equal(t, []string{"x"}, same.received())
		assert.Equal(t, []string{"y"}, far.received())
		assert.Empty(t, one.received())
		assert.Equal(t, 1, s.a.connections())
		assert.Equal(t, 1, s.b.connections())
		assert.Len(t, s.a.requests, 2)
		for _, l := range []*Listener{l1, l2, l3, l4, l5} {
			l.Close()
		}
		assert.Zero(t, s.a.connections()+s.b.connections(), "the last Close waits")
		l5.Close() // changes nothing
	})
}

func TestTheConnectionToANodeIsClosedWithItsLastChannel(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		_, l1 := s.listen("a0")
		s.listen("b0")
		pass(time.Second)
		l1.Close()
		pass(0)
		assert.Zero(t, s.a.connections())
		assert.Equal(t, 1, s.b.connections())
	})
}

func TestAChannelWithoutListenersIsUnsubscribed(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		kept, _ := s.listen("a0")
		gone, l2 := s.listen("a1")
		pass(time.Second)
		l2.Close()
		again, l3 := s.listen("a1") // before it was left
		pass(time.Second)
		assert.Equal(t, "-a1", s.a.requests[2])
		assert.Equal(t, "+a1", s.a.requests[3])
		s.a.send("a1", "x")
		assert.Equal(t, []string{"open"}, gone.received())
		assert.Equal(t, []string{"open", "x"}, again.received())
		l3.Close()
		pass(time.Second)
		assert.Equal(t, []string{"-a1"}, s.a.requests[4:])
		assert.Equal(t, []string{"open"}, kept.received(), "it goes on")
	})
}

func TestAFailedUnsubscribeDoesNotAffectOtherChannels(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		kept, _ := s.listen("a0")
		_, l2 := s.listen("a1")
		pass(time.Second)
		s.a.set(func() { s.a.forbids["a1"] = true }) // as for a user without the right to unsubscribe
		l2.Close()
		pass(time.Second)
		s.a.send("a0", "x")
		assert.Equal(t, []string{"open", "x"}, kept.received())
	})
}

func TestABrokenConnectionIsReopened(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		one, _ := s.listen("a0")
		other, _ := s.listen("a1")
		far, _ := s.listen("b0")
		pass(time.Second)
		s.a.cut()
		pass(2 * minPause)
		for _, handler := range []*fakeHandler{one, other} {
			assert.Equal(t, []string{"open", errDown.Error(), "open"}, handler.received())
		}
		assert.Equal(t, []string{"open"}, far.received(), "of another node")
		assert.Len(t, s.a.attempts, 2)
		assert.NotZero(t, s.network.refreshes)
	})
}

func TestAnUnreachableNodeIsRetriedWithBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		s.a.set(func() { s.a.down = true })
		var listeners []*Listener
		for range 100 {
			_, l := s.listen("a0")
			listeners = append(listeners, l)
		}
		pass(10 * time.Minute)
		assert.InDelta(t, 10*time.Minute/(maxPause*5/4)+6, len(s.a.attempts), 6, "once for all listeners")
		near, _ := s.listen("b0")
		assert.Equal(t, []string{"open"}, near.received(), "it does not wait for another node")
		before := len(s.a.attempts)
		s.a.set(func() { s.a.down = false })
		listeners[0].Retry()
		pass(0)
		assert.Len(t, s.a.attempts, before+1)
		assert.Equal(t, 1, s.a.connections())
	})
}

func TestAForbiddenChannelDoesNotDisturbOthers(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		s.a.set(func() { s.a.forbids["a1"] = true })
		before, _ := s.listen("a0")
		forbidden, l2 := s.listen("a1")
		after, _ := s.listen("a2")
		pass(10 * time.Minute)
		assert.Equal(t, []string{"open"}, before.received())
		assert.Equal(t, []string{"open"}, after.received())
		refusals := forbidden.received()
		assert.InDelta(t, 20, len(refusals), 8, "pauses grow")
		assert.NotContains(t, refusals, "open")
		assert.Len(t, s.a.attempts, 1)
		s.a.set(func() { delete(s.a.forbids, "a1") })
		l2.Retry()
		assert.Equal(t, []string{"open"}, forbidden.received())
	})
}

func TestAChannelFollowsItsSlot(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		moved, _ := s.listen("a0")
		stays, _ := s.listen("a1")
		pass(time.Second)
		s.network.set(func() { s.network.place["a0"] = s.b })
		s.a.dropChannel("a0")
		pass(2 * minPause)
		s.b.send("a0", "x")
		s.a.send("a1", "y")
		assert.Equal(t, []string{"open", errMoved.Error(), "open", "x"}, moved.received())
		assert.Equal(t, []string{"open", "y"}, stays.received())
		s.network.set(func() { s.network.place["a1"] = s.b })
		s.a.dropChannel("a1")
		pass(2 * minPause)
		assert.Zero(t, s.a.connections(), "nothing is left there")
		assert.Equal(t, []string{errMoved.Error(), "open"}, stays.received())
	})
}

func TestChannelsOfABrokenConnectionFollowTheirSlots(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		moved, _ := s.listen("a0")
		stays, _ := s.listen("a1")
		pass(time.Second)
		s.network.set(func() { s.network.place["a0"] = s.b })
		s.a.cut()
		pass(2 * minPause)
		s.b.send("a0", "x")
		s.a.send("a1", "y")
		assert.Equal(t, []string{"open", errDown.Error(), "open", "x"}, moved.received())
		assert.Equal(t, []string{"open", errDown.Error(), "open", "y"}, stays.received())
	})
}

func TestAFailedNodeLookupIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		s.network.set(func() { s.network.unknown = errDown })
		handler, _ := s.listen("a0")
		pass(minPause / 2)
		assert.Equal(t, []string{errDown.Error()}, handler.received())
		s.network.set(func() { s.network.unknown = nil })
		pass(minPause)
		assert.Equal(t, []string{"open"}, handler.received())
	})
}

func TestCloseDoesNotWaitForTheBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		s.a.set(func() { s.a.down = true })
		_, l := s.listen("a0")
		pass(5 * time.Minute)
		start := time.Now()
		l.Close()
		assert.Zero(t, time.Since(start))
	})
}
