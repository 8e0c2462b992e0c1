package queue

import (
	"context"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/link"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// maxSettleTimeout is the maximum time of a settlement, so that a dead connection does not block it for longer.
	maxSettleTimeout = 12 * time.Second

	// minClaimTimeout is the lowest time limit of a claim with short leases.
	minClaimTimeout = 3 * time.Second

	// besideBody is about how many bytes a message takes in the reply to a claim, without its id, body and metadata.
	besideBody = 60
)

// runTimed makes a call that transfers some bytes. Its time limit is that of a Window, or most if that is less.
func (g *Group) runTimed(ctx context.Context, w *link.Window, bytes int, most time.Duration, call script.Call) (script.Reply, error) {
	call.Timeout = min(w.Timeout(bytes), most)
	reply, err := g.partition.Client().Run(ctx, call)
	if script.TimedOut(err) {
		w.Lost(bytes)
	}
	return reply, err
}

// runClaim makes a claim. An attempt may take half a lease at most, so that a second one can end within the lease.
func (g *Group) runClaim(ctx context.Context, r ClaimRequest, call script.Call) (script.Reply, error) {
	if g.claims == nil {
		return g.partition.Client().Run(ctx, call)
	}
	return g.runTimed(ctx, g.claims, max(r.Bytes, g.largest), max(r.Lease/2, minClaimTimeout), call)
}

// fitting reduces a request to what fits into a reply.
func (g *Group) fitting(r ClaimRequest) ClaimRequest {
	if r.Bytes == 0 || r.Bytes > MaxReplyBytes {
		r.Bytes = MaxReplyBytes
	}
	if g.claims != nil {
		r.Bytes = min(r.Bytes, g.claims.Size())
		r.Limit = min(r.Limit, max(1, r.Bytes/(besideBody+26)))
		r.Free = min(r.Free, r.Limit)
	}
	return r
}

// arrived records how long the answer to a claim took.
func (g *Group) arrived(claims ClaimReply, took time.Duration) {
	if g.claims == nil {
		return
	}
	bytes, largest := 0, 0
	for _, m := range claims.Messages {
		size := len(m.Body) + len(m.Metadata)
		bytes += size + len(m.ID) + besideBody
		largest = max(largest, size)
	}
	if len(claims.Messages) > 0 {
		g.largest = largest
	}
	g.claims.Arrived(bytes, took)
}

// maxCallBytes returns how many bytes of metadata one settlement carries at most.
func (g *Group) maxCallBytes() int {
	if g.calls == nil {
		return maxMetadataBytes
	}
	return g.calls.Size()
}

// sizeOf returns about how many bytes arguments take on the wire.
func sizeOf(args []any) (bytes int) {
	const other = 16 // bytes of a number, and of the overhead of each argument
	for _, arg := range args {
		bytes += other
		switch value := arg.(type) {
		case string:
			bytes += len(value)
		case []byte:
			bytes += len(value)
		}
	}
	return bytes
}
