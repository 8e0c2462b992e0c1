package link

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// connection is a connection with a bandwidth in bytes/s and a round trip.
type connection struct {
	bandwidth int
	trip      time.Duration
}

// call makes a call of the window's size, or of one message that is larger. It returns how long it took, and false if it was lost.
func (c connection) call(w *Window, message int) (took time.Duration, arrived bool) {
	bytes := max(w.Size()/message, 1) * message
	took = c.trip + time.Duration(float64(bytes)/float64(c.bandwidth)*float64(time.Second))
	if within := w.Timeout(bytes); took > within {
		w.Lost(bytes)
		return within, false
	}
	w.Arrived(bytes, took)
	return took, true
}

func TestEachConnectionDeliversEachMessage(t *testing.T) {
	for _, trip := range []time.Duration{0, 5 * time.Millisecond, 300 * time.Millisecond} {
		for _, bandwidth := range []int{50e3, 200e3, 1500e3, 10e6} {
			for _, message := range []int{200, 2000, 10e3, 100e3, 1e6} {
				w, c := New(1<<20), connection{bandwidth, trip}
				w.Arrived(0, trip)
				lost := 0
				for range 20 {
					if _, arrived := c.call(w, message); !arrived {
						lost++
					}
				}
				assert.LessOrEqual(t, lost, 5, "%v with messages of %d bytes", c, message)
				took, arrived := c.call(w, message)
				assert.True(t, arrived, "%v with messages of %d bytes", c, message)
				single := c.trip + time.Duration(float64(message)/float64(bandwidth)*float64(time.Second))
				assert.LessOrEqual(t, took, 3*target+single, "%v with messages of %d bytes", c, message)
			}
		}
	}
}

func TestAFastConnectionGetsLargeCallsSoon(t *testing.T) {
	w, c := New(1<<20), connection{100e6, 300 * time.Millisecond}
	w.Arrived(0, c.trip)
	for range 5 {
		c.call(w, 1000)
	}
	assert.Equal(t, 1<<20, w.Size())
	assert.Equal(t, minTimeout, w.Timeout(1000))
}

func TestAConnectionThatBecomesSlowGetsSmallCallsSoon(t *testing.T) {
	w := New(1 << 20)
	for range 10 {
		connection{100e6, 0}.call(w, 1000)
	}
	lost, spent := 0, time.Duration(0)
	for lost < 10 {
		took, arrived := connection{50e3, 0}.call(w, 1000)
		if spent += took; arrived {
			break
		}
		lost++
	}
	assert.Equal(t, 2, lost)
	assert.Less(t, spent, 6*time.Second)
}

func TestAnUnknownRoundTripDoesNotKeepCallsSmall(t *testing.T) {
	w, c := New(1<<20), connection{10e6, time.Second}
	for range 30 {
		c.call(w, 1000)
	}
	assert.Equal(t, 1<<20, w.Size())
}

func TestALongerRoundTripDoesNotKeepCallsSmall(t *testing.T) {
	w := New(1 << 20)
	for _, trip := range []time.Duration{time.Millisecond, 400 * time.Millisecond} {
		for range 60 {
			connection{10e6, trip}.call(w, 1000)
		}
	}
	assert.Equal(t, 1<<20, w.Size())
}

func TestASlowEmptyReplyDoesNotChangeTheSize(t *testing.T) {
	w := New(1 << 20)
	w.Arrived(0, time.Second)
	w.Arrived(100, 3*time.Second)
	assert.Equal(t, firstSize, w.Size())
}

func TestALostCallOfMinimumSizeRaisesTheTimeout(t *testing.T) {
	w := New(1 << 20)
	for _, want := range []time.Duration{minTimeout, minTimeout, minTimeout, 2 * minTimeout, 4 * minTimeout} {
		assert.Equal(t, want, w.Timeout(0))
		w.Lost(w.Size())
	}
	w.Arrived(0, time.Millisecond)
	assert.Equal(t, minTimeout, w.Timeout(0))
	assert.Equal(t, minSize, w.Size())
}

// TestLostSmallCallsRaiseTheTimeoutALittle because their connection is probably dead, whatever their size.
func TestLostSmallCallsRaiseTheTimeoutALittle(t *testing.T) {
	w := New(1 << 20)
	for _, want := range []time.Duration{1, 1, 2, 2, 4, 4, 4, 4} {
		assert.Equal(t, want*minTimeout, w.Timeout(100))
		w.Lost(100)
	}
	w.Arrived(100, time.Millisecond)
	assert.Equal(t, minTimeout, w.Timeout(100))
}

// TestSmallCallsSucceedOverALongRoundTrip, also if it has become longer: no large call measures it.
func TestSmallCallsSucceedOverALongRoundTrip(t *testing.T) {
	w := New(1 << 20)
	for _, trip := range []time.Duration{time.Millisecond, 1600 * time.Millisecond, 2 * time.Second, time.Millisecond, 5 * time.Second} {
		lost := 0
		for range 20 {
			if took := trip; took > w.Timeout(100) {
				lost++
				w.Lost(100)
			} else {
				w.Arrived(100, took)
			}
		}
		assert.LessOrEqual(t, lost, 4, "%s", trip)
	}
}
