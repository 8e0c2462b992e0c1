package delivery

import (
	"context"
	"sync"
	"time"
)

// buffer holds what is claimed and not handed out, in order.
type buffer struct {
	items chan *item
	fresh chan struct{} // signalled when it is filled

	mu   sync.Mutex
	last time.Time // guarded by mu; when it was filled last
}

func newBuffer(size int) *buffer {
	return &buffer{items: make(chan *item, size), fresh: make(chan struct{}, 1)}
}

// filled says that messages are about to come in.
func (b *buffer) filled() {
	b.mu.Lock()
	b.last = time.Now()
	b.mu.Unlock()
	tell(b.fresh)
}

// stalled blocks until messages have been in the buffer for maxHold; false when ctx
// ends.
func (b *buffer) stalled(ctx context.Context) bool {
	timer := time.NewTimer(maxHold)
	defer timer.Stop()
	for {
		select {
		case <-b.fresh:
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
		if len(b.items) == 0 {
			continue // until it is filled again
		}
		b.mu.Lock()
		left := time.Until(b.last.Add(maxHold))
		b.mu.Unlock()
		if left <= 0 {
			return true
		}
		timer.Reset(left)
	}
}

// drain takes out all that there is.
func (b *buffer) drain() []*item {
	var list []*item
	for {
		select {
		case it := <-b.items:
			list = append(list, it)
		default:
			return list
		}
	}
}
