package queue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// MaxFreedBytes is how many bytes of messages one call removes at most: freeing them
	// takes Redis time.
	MaxFreedBytes = 32 << 20

	// maxMetadataBytes is how many bytes of metadata one call of nack.lua carries.
	maxMetadataBytes = 1 << 20
)

// Delivery names one delivery of a message. It is current as long as its lease, even if that has expired, is the
// last one: it was not settled, and nobody has claimed the message since. All settlements obey one rule: that of a
// delivery that is no longer current has no effect and is reported as stale.
type Delivery struct {
	ID      string
	Receipt string // from the claim
}

// Done is a delivery whose message the group has handled.
type Done struct {
	Delivery
	Size int // of the message's body, in bytes
}

// Held is a delivery that a consumer still holds.
type Held struct {
	Delivery
	HandedOut bool // a handler has seen it
}

// Nack is a failed delivery, unless the handler has decided otherwise.
type Nack struct {
	Delivery
	Delay    time.Duration // until the message is due again
	Metadata []byte        // what Claim returns from now on; nil keeps the old
	Deferred bool          // the delivery does not count
	Reason   string        // if not empty, the message is dead-lettered for it
	Error    string        // what went wrong, if that is known: it follows the reason of the last delivery
}

// LastErrorMetadata is the key of the delivery's error in the metadata of a Nack. It is not part of the
// message, and handlers do not see it.
const LastErrorMetadata = "_redisdelay_last_error"

// decision is what the handler has decided, and how nack.lua gets the details.
func (n Nack) decision() (decision string, detail any) {
	switch {
	case n.Reason != "":
		return "bury", n.Reason
	case n.Deferred:
		return "defer", script.Milliseconds(n.Delay)
	case n.Error != "":
		return "", fmt.Sprintf("%d %s", script.Milliseconds(n.Delay), n.Error)
	default:
		return "", script.Milliseconds(n.Delay)
	}
}

// Release returns a message to the queue that no handler has seen.
type Release struct {
	Delivery
	DueAt time.Time
	Age   time.Duration // since it was claimed, at least
}

// Burial is a message that can never be handled.
type Burial struct {
	Delivery
	Reason string
}

// Acked is what an Ack did.
type Acked struct {
	Stale []string // ids of deliveries that are no longer current
	Room  bool     // the group has waited for room under its limit
}

// maxAcked is how many messages one call acks. For each, it reads and writes the list of groups that need it: 6 kB with 100 groups
// whose names have 60 bytes, as those of Broadcast have.
const maxAcked = 250

// Ack ends any number of messages for the group. After an error, some may be acked.
func (g *Group) Ack(ctx context.Context, done []Done) (acked Acked, err error) {
	for len(done) > 0 {
		n := min(maxAcked, sized(done, MaxFreedBytes, func(d Done) int { return d.Size }))
		args := []any{g.name, g.partition.Channel()}
		for _, d := range done[:n] {
			args = append(args, d.ID, d.Receipt)
		}
		reply, err := g.Run(ctx, ackScript, args)
		if err != nil {
			return acked, err
		}
		stale, room := reply.Texts(), reply.Texts()
		if err := reply.End(); err != nil {
			return acked, err
		}
		done = done[n:]
		acked.Stale, acked.Room = append(acked.Stale, stale...), acked.Room || len(room) > 0
	}
	return acked, nil
}

// sized is how many values go into one call: as many as fit, and at least one.
func sized[T any](values []T, bytes int, size func(T) int) int {
	total := 0
	for i, value := range values {
		total += size(value)
		if i > 0 && (total > bytes || i == MaxMessages) {
			return i
		}
	}
	return len(values)
}

// Nack makes any number of messages due again after a delay, or dead messages. If
// maxDeliveries is above 0, it buries those that had as many deliveries. Like Extend, Release and Bury, it returns
// the ids of the stale deliveries. After an error, what it returns is true, and the other nacks may have arrived too.
func (g *Group) Nack(ctx context.Context, maxDeliveries int, nacks []Nack) (stale []string, buried []Buried, err error) {
	for len(nacks) > 0 {
		count := sized(nacks, g.maxCallBytes(), func(n Nack) int { return len(n.Metadata) + len(n.Reason) + len(n.Error) })
		args := []any{g.name, g.partition.Channel(), maxDeliveries}
		for _, n := range nacks[:count] {
			decision, detail := n.decision()
			args = append(args, n.ID, n.Receipt, decision, detail, n.Metadata)
		}
		nacks = nacks[count:]
		reply, err := g.Run(ctx, nackScript, args)
		if err != nil {
			return stale, buried, err
		}
		ids, some := reply.Texts(), buriedIn(&reply)
		if err := reply.End(); err != nil {
			return stale, buried, err
		}
		stale, buried = append(stale, ids...), append(buried, some...)
	}
	return stale, buried, nil
}

// Heartbeat is a consumer's sign of life.
type Heartbeat struct {
	Consumer string
	Lease    time.Duration
	Presence Presence
}

// Extend starts the leases anew. Messages that were handed out count as delivered from
// now on, even if their consumer is lost. Without messages, it says that the consumer is
// alive.
func (g *Group) Extend(ctx context.Context, h Heartbeat, held []Held) ([]string, error) {
	args := []any{h.Lease.Milliseconds(), g.name, h.Consumer, h.Presence.Alive.Milliseconds(), h.Presence.Info}
	for _, h := range held {
		handedOut := 0
		if h.HandedOut {
			handedOut = 1
		}
		args = append(args, h.ID, h.Receipt, handedOut)
	}
	return g.RunForTexts(ctx, extendScript, args)
}

// Release gives messages back with their old due times. The deliveries do not count.
func (g *Group) Release(ctx context.Context, releases []Release) ([]string, error) {
	args := []any{g.name, g.partition.Channel()}
	for _, r := range releases {
		args = append(args, r.ID, r.Receipt, r.DueAt.UnixMilli(), script.Milliseconds(r.Age))
	}
	return g.RunForTexts(ctx, releaseScript, args)
}

// MaxReasonBytes is how long the reason of a dead message may be.
const MaxReasonBytes = 1000

// Reason makes a text a reason for people to read, and drops what is too much.
func Reason(text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "?"))
	if len(text) > MaxReasonBytes {
		text = strings.ToValidUTF8(text[:MaxReasonBytes], "") // without half a character
	}
	return text
}

// Bury makes messages dead messages, which the caller has in delivery.
func (g *Group) Bury(ctx context.Context, burials []Burial) ([]string, error) {
	args := []any{g.name, g.partition.Channel(), 0}
	for _, b := range burials {
		args = append(args, b.ID, b.Receipt, b.Reason)
	}
	return g.RunForTexts(ctx, buryHeldScript, args)
}

// RunForTexts calls a script that returns texts.
func (g *Group) RunForTexts(ctx context.Context, s *script.Script, args []any) ([]string, error) {
	reply, err := g.Run(ctx, s, args)
	if err != nil {
		return nil, err
	}
	return reply.Rest(), reply.End()
}

// BuryAny makes messages dead messages, whether they wait for the group or are in delivery:
// up to MaxMessages. It returns the ids of those that are neither, unless they are dead messages
// for this reason. A late copy of the call buries nothing that was requeued since.
func (g *Group) BuryAny(ctx context.Context, reason string, ids []string) (left []string, err error) {
	now, err := g.partition.Now(ctx)
	if err != nil {
		return nil, err
	}
	args := []any{g.name, g.partition.Channel(), now + script.Patience(ctx).Milliseconds()}
	for _, id := range ids {
		args = append(args, id, "", reason)
	}
	return g.RunForTexts(ctx, buryScript, args)
}

// Requeue makes dead messages due again, as if they had never been delivered, if they were
// buried no later than a time by Redis's clock, in ms. It returns the ids of the others.
func Requeue(ctx context.Context, g *Group, ids []string, latest int64) ([]string, error) {
	return g.RunForTexts(ctx, requeueScript, append([]any{g.Name(), g.Partition().Channel(), latest}, script.Strings(ids)...))
}

// Discard removes dead messages for good, if they were buried no later than a time by
// Redis's clock, in ms. It returns the ids of the others.
func Discard(ctx context.Context, g *Group, ids []string, latest int64) (missing []string, err error) {
	for len(ids) > 0 {
		args := append([]any{g.Name(), g.Partition().Channel(), MaxFreedBytes, latest}, script.Strings(ids)...)
		reply, err := g.Run(ctx, discardScript, args)
		if err != nil {
			return missing, err
		}
		others, left := reply.Texts(), reply.Texts()
		if len(left) >= len(ids) {
			reply.Fail("all %d ids are left", len(ids))
		}
		if err := reply.End(); err != nil {
			return missing, err
		}
		missing, ids = append(missing, others...), left
	}
	return missing, nil
}
