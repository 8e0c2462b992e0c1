package notify

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestASteadyConnectionReopensAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		handler, _ := s.listen("a0")
		for range 5 {
			pass(steady)
			handler.received()
			s.a.cut()
			pass(0)
			assert.Equal(t, []string{errDown.Error(), "open"}, handler.received())
		}
	})
}

// TestAnUnstableConnectionReopensWithBackoff: a successful subscription does not reset the pauses.
func TestAnUnstableConnectionReopensWithBackoff(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"at once": 0, "soon": steady / 2} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scene) {
				handler, _ := s.listen("a0")
				for start := time.Now(); time.Since(start) < 10*time.Minute; {
					for s.a.connections() == 0 {
						pass(100 * time.Millisecond)
					}
					pass(lasts)
					s.a.cut()
					pass(0)
				}
				assert.Contains(t, handler.received(), "open")
				s.a.set(func() { assert.InDelta(t, 10*time.Minute/(maxPause*5/4)+6, len(s.a.attempts), 6) })
			})
		})
	}
}

func TestAFailedNodeIsRetriedAtOnceThenWithBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		s.listen("a0")
		pass(time.Hour)
		s.a.set(func() { s.a.down = true })
		s.a.cut()
		pass(minPause / 2)
		s.a.set(func() { assert.Len(t, s.a.attempts, 2, "the first, and one at once") })
		pass(minPause)
		s.a.set(func() { assert.Len(t, s.a.attempts, 3) })
	})
}
