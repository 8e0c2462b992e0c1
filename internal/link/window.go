// Package link sizes calls by what the connection to Redis delivers, as congestion control does: a call that is too large for a
// slow connection would time out, and again each time it is repeated.
package link

import (
	"sync"
	"time"
)

const (
	// target is how long the transfer of one call should take at most. It is a small part of every time limit, and short enough
	// for other calls to wait for.
	target = 250 * time.Millisecond

	// minTimeout is the shortest time limit of a call. It is many round trips, and short enough to notice a dead connection.
	minTimeout = 1500 * time.Millisecond

	// maxDoubled limits how often the time limit is doubled: to 96 s. maxDoubledSmall is the limit while the lost calls are smaller
	// than minSize: to 6 s, because the connection is dead rather than slow.
	maxDoubled      = 6
	maxDoubledSmall = 2

	// firstSize is the size of the first call, minSize that of calls over the slowest connection. Calls of up to minSize measure
	// the round trip.
	firstSize = 64 << 10
	minSize   = 4 << 10
)

// Window tells how many bytes the next call should transfer, and how long it may take. Each caller that transfers messages has
// one of its own, so callers that share a connection share what it delivers. It is safe for concurrent use.
type Window struct {
	maxSize int // immutable

	mu      sync.Mutex
	size    int           // guarded by mu; bytes of the next call
	rtt     time.Duration // guarded by mu; a recent round trip without a transfer; 0: not known
	perByte float64       // guarded by mu; ns, of recent transfers
	lost    int           // guarded by mu; how often the time limit is doubled because of lost calls
	small   int           // guarded by mu; calls in a row that were lost although they were smaller than minSize
}

// New returns a Window for calls of up to maxSize bytes.
func New(maxSize int) *Window { return &Window{maxSize: maxSize, size: min(firstSize, maxSize)} }

// Size is how many bytes the next call should transfer at most. One message may be larger: it is sent alone.
func (w *Window) Size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// Timeout is how long a call with this many bytes may take until it counts as lost. Each value is twice the one before, so that
// there are few.
func (w *Window) Timeout(bytes int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	const patience = 4 // times as long as expected
	expected := w.rtt + time.Duration(float64(bytes)*w.perByte)
	doubled := 0
	for doubled < maxDoubled && minTimeout<<doubled < patience*expected {
		doubled++
	}
	return minTimeout << min(doubled+w.lost, maxDoubled)
}

// Arrived records that a call that transferred this many bytes was answered.
func (w *Window) Arrived(bytes int, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if bytes <= minSize {
		if w.rtt == 0 || took < w.rtt || w.small > 0 { // the lost ones took even longer
			w.rtt = took
		}
		w.rtt += (took - w.rtt) / 8 // the way may become longer, or only this call was slow
	}
	w.lost, w.small = 0, 0
	transfer := max(took-w.rtt, time.Microsecond)
	if bytes > minSize {
		w.perByte += (float64(transfer)/float64(bytes) - w.perByte) / 2
	}
	switch {
	case transfer > target && bytes > minSize:
		w.size = max(minSize, min(w.size, int(float64(bytes)*float64(target)/float64(transfer))))
	case bytes >= w.size/2:
		w.size = min(w.maxSize, 2*w.size)
	}
}

// Lost records that a call of this many bytes was not answered in time: the next one should be smaller, or may take longer if
// that is not possible. A call below minSize probably shows that the connection is dead; a second one, that the round trip may be
// too long.
func (w *Window) Lost(bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case bytes < minSize:
		if w.small++; w.small%2 == 0 {
			w.lost = max(w.lost, min(w.lost+1, maxDoubledSmall))
		}
	case w.size <= minSize || bytes > w.size: // a single message may be larger than the window
		w.lost = min(w.lost+1, maxDoubled)
	}
	w.size = max(minSize, min(w.size, bytes)/4)
}
