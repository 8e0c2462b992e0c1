package delivery

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestAnAlarmCallsAtItsTimeAndWhenItIsRung, also when it is rung during a call.
func TestAnAlarmCallsAtItsTimeAndWhenItIsRung(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, start, busy := newAlarm(), time.Now(), time.Duration(0)
		var at []time.Duration
		a.set(func() time.Time {
			at = append(at, time.Since(start))
			pass(busy)
			return time.Now().Add(time.Minute)
		})
		settle(time.Minute + time.Second)
		busy = 2 * time.Second
		a.ring()
		settle(time.Second)
		a.ring()
		a.ring()
		settle(5 * time.Second)
		a.stop()
		settle(time.Hour)
		assert.Equal(t, []time.Duration{0, time.Minute, 61 * time.Second, 63 * time.Second}, at)
	})
}

// TestAStoppedAlarmIsSilent, and one that is set again calls nothing but the new function.
func TestAStoppedAlarmIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, first, second := newAlarm(), 0, 0
		a.ring()
		a.set(func() time.Time { first++; return time.Now().Add(time.Second) })
		synctest.Wait()
		a.set(func() time.Time { second++; return time.Now().Add(time.Hour) })
		settle(time.Minute)
		a.stop()
		a.ring()
		settle(time.Minute)
		assert.Equal(t, []int{1, 1}, []int{first, second})
	})
}
