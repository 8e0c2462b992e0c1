package delivery

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAnAlarmFiresWhenDueAndWhenRung: if it is rung during a call, the function is called again.
func TestAnAlarmFiresWhenDueAndWhenRung(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, start := newAlarm(), time.Now()
		var at []time.Duration
		a.set(func() time.Time {
			if at = append(at, time.Since(start)); len(at) == 1 {
				a.ring()
			}
			return time.Now().Add(time.Minute)
		})
		settle(time.Second)
		require.GreaterOrEqual(t, len(at), 2, "it was rung during the first call")
		settle(time.Minute)
		a.ring()
		settle(time.Second)
		a.stop()
		settle(time.Hour)
		assert.Equal(t, []time.Duration{0, time.Minute, 61 * time.Second}, slices.Compact(at))
	})
}

// TestAStoppedAlarmNeverFires: an alarm that is set again calls only the new function.
func TestAStoppedAlarmNeverFires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, first, second := newAlarm(), 0, 0
		a.ring()
		synctest.Wait()
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
