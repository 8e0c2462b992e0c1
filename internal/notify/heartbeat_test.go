package notify

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// noticed is the maximum time until Handlers are notified of a silent failure.
const noticed = Interval + Timeout

func TestASilentConnectionIsReopened(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		one, _ := s.listen("a0")
		other, _ := s.listen("a1")
		for range 20 {
			pass(10*time.Second + Interval/20)
			one.received()
			other.received()
			s.a.each(func(c *fakeConn) { c.silent = true })
			pass(noticed)
			for _, handler := range []*fakeHandler{one, other} {
				assert.Equal(t, []string{ErrNoAnswer.Error(), "open"}, handler.received())
			}
		}
	})
}

// TestAConnectionToTheWrongNodeIsDetected: the connection works, but nothing is published there.
func TestAConnectionToTheWrongNodeIsDetected(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		handler, _ := s.listen("a0")
		pass(time.Minute)
		s.network.set(func() { s.network.elsewhere = s.b })
		pass(noticed)
		assert.Equal(t, []string{"open", ErrNoAnswer.Error()}, handler.received(), "it does not work until a heartbeat arrives")
		s.network.set(func() { s.network.place["a0"], s.network.elsewhere = s.b, nil })
		pass(noticed + maxPause)
		received := handler.received()
		assert.Equal(t, "open", received[len(received)-1])
		assert.Equal(t, 1, s.b.connections())
	})
}

// TestFailingHeartbeatsAreReported because notifications of claims fail too.
func TestFailingHeartbeatsAreReported(t *testing.T) {
	for name, hangs := range map[string]time.Duration{"at once": 0, "late": Timeout} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scene) {
				handler, _ := s.listen("a0")
				pass(time.Minute)
				s.network.set(func() {
					s.network.publish = func() (bool, error) {
						time.Sleep(hangs) //nolint:forbidigo // stands for a slow server, in a bubble
						return false, errDown
					}
				})
				pass(noticed)
				assert.Len(t, handler.received(), 2)
				s.network.set(func() { s.network.publish = nil })
				pass(noticed)
				received := handler.received()
				assert.Equal(t, "open", received[len(received)-1])
			})
		})
	}
}

func TestTransientHeartbeatFailuresAreIgnored(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		handler, _ := s.listen("a0")
		pass(time.Second)
		failures := 3
		s.network.set(func() {
			s.network.publish = func() (bool, error) {
				if failures--; failures >= 0 {
					return false, errDown
				}
				return false, nil
			}
		})
		pass(time.Minute)
		assert.Equal(t, []string{"open"}, handler.received())
	})
}

func TestAnIdleConnectionSendsOneHeartbeatPerInterval(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		s.listen("a0")
		handler, _ := s.listen("a1")
		pass(0)
		assert.Equal(t, 1, s.network.heartbeats())
		pass(10 * Interval)
		assert.Equal(t, 10, s.network.heartbeats(), "one for all channels")
		assert.Equal(t, []string{"open"}, handler.received())
		assert.Len(t, s.a.attempts, 1)
	})
}

// TestNotificationsDoNotCountWithoutHeartbeatPermission, and connections to the node are not reopened repeatedly.
func TestNotificationsDoNotCountWithoutHeartbeatPermission(t *testing.T) {
	for name, forbid := range map[string]func(s *scene, forbidden bool){
		"publish": func(s *scene, forbidden bool) {
			s.network.set(func() {
				s.network.publish = func() (bool, error) {
					if forbidden {
						return true, errNoRight
					}
					return false, nil
				}
			})
		},
		"subscribe": func(s *scene, forbidden bool) { s.a.set(func() { s.a.forbids[":"] = forbidden }) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scene) {
				handler, _ := s.listen("a0")
				pass(time.Minute)
				assert.Equal(t, []string{"open"}, handler.received())
				forbid(s, true)
				s.a.cut()
				pass(10 * time.Minute)
				received := handler.received()
				assert.NotContains(t, received, "open")
				assert.InDelta(t, 20, len(received), 8, "pauses grow")
				late, _ := s.listen("a0")
				assert.Equal(t, []string{errNoRight.Error()}, late.received())
				assert.Len(t, s.a.attempts, 2)
				forbid(s, false)
				pass(2 * maxPause)
				received = handler.received()
				assert.Equal(t, "open", received[len(received)-1])
				assert.Len(t, s.a.attempts, 2)
			})
		})
	}
}

// TestHeartbeatsChangeTheirChannelWhenItsSlotMoves: the other channels stay.
func TestHeartbeatsChangeTheirChannelWhenItsSlotMoves(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		s.listen("a0")
		stays, _ := s.listen("a1")
		for _, moving := range []string{"a0", "a1"} { // heartbeats were beside one of them
			pass(time.Minute)
			s.a.dropChannel(moving)
		}
		pass(time.Minute)
		s.network.heartbeats()
		pass(10 * Interval)
		assert.Equal(t, 10, s.network.heartbeats())
		assert.Equal(t, 1, s.a.connections())
		assert.Equal(t, "open", stays.received()[0])
	})
}

// TestAnUnansweredRequestReopensTheConnection although other events are received.
func TestAnUnansweredRequestReopensTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		s.listen("a0")
		pass(time.Second)
		s.a.each(func(c *fakeConn) { c.mute = true })
		mute, _ := s.listen("a1")
		for range 10 {
			pass(Timeout / 10)
			s.a.send("a0", "x")
		}
		pass(0)
		assert.Equal(t, []string{ErrNoAnswer.Error(), "open"}, mute.received(), "by another connection")
	})
}

// TestTheLastCloseWaitsForAHeartbeat that is being published.
func TestTheLastCloseWaitsForAHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		_, l := s.listen("a0")
		pass(time.Minute)
		ended := false
		s.network.set(func() {
			s.network.publish = func() (bool, error) {
				time.Sleep(Timeout) //nolint:forbidigo // stands for a slow server, in a bubble
				ended = true
				return false, errDown
			}
		})
		pass(Interval)
		l.Close()
		assert.True(t, ended)
	})
}
