package delivery

import (
	"context"
	"slices"
	"sync"
	"time"
)

// room shares out how many messages may be claimed: enough for the free workers and
// a buffer that suits their pace. Lanes get their part in the order in which they
// ask. It is safe for concurrent use.
type room struct {
	workers int
	pace    *pace

	mu          sync.Mutex
	outstanding int             // guarded by mu; messages in the buffer and at the workers
	promised    int             // guarded by mu; messages that claims under way may get
	asking      []chan *promise // guarded by mu; each with a place for the answer
}

// promise is room for a claim.
type promise struct {
	messages int
	expired  *time.Timer // takes the promise back
}

// take waits for room; nil when ctx ends. Call keep with what it has got.
func (r *room) take(ctx context.Context) *promise {
	answer := make(chan *promise, 1)
	r.mu.Lock()
	r.asking = append(r.asking, answer)
	r.share()
	r.mu.Unlock()
	select {
	case p := <-answer:
		return p
	case <-ctx.Done():
	}
	r.mu.Lock()
	r.asking = slices.DeleteFunc(r.asking, func(other chan *promise) bool { return other == answer })
	r.mu.Unlock()
	select {
	case p := <-answer:
		r.keep(p, 0)
	default:
	}
	return nil
}

// keep ends a promise: the claim got so many messages.
func (r *room) keep(p *promise, got int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.expired.Stop() {
		r.promised -= p.messages
	}
	r.outstanding += got
	r.share()
}

// free says that messages have been handled or given back.
func (r *room) free(messages int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outstanding -= messages
	r.share()
}

// share gives room to those who ask: when half of what is claimed ahead has been
// handled or, with fast handlers, as soon as it makes a good batch, so that Redis is
// at work while messages are being handled. The caller holds mu.
func (r *room) share() {
	if len(r.asking) == 0 {
		return
	}
	ahead := r.pace.ahead(r.workers)
	low := r.workers + ahead - min(ahead/2, maxClaim/2)
	for len(r.asking) > 0 {
		taken := r.outstanding + r.promised
		if taken >= low {
			return
		}
		part := max(1, (r.workers+ahead-taken)/len(r.asking))
		r.asking[0] <- r.promise(min(part, r.pace.most(r.workers), maxClaim))
		r.asking = slices.Delete(r.asking, 0, 1)
	}
}

// promise makes a promise. It does not hold for long: a claim that hangs must not
// keep the room from other lanes. The caller holds mu.
func (r *room) promise(messages int) *promise {
	r.promised += messages
	return &promise{messages, time.AfterFunc(maxHold, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.promised -= messages
		r.share()
	})}
}
