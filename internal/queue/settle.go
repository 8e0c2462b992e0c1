package queue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// MaxFreedBytes is how many bytes of messages one call removes at most: freeing memory takes
	// Redis time.
	MaxFreedBytes = 32 << 20

	// maxMetadataBytes is how many bytes of metadata one call of nack.lua carries.
	maxMetadataBytes = 1 << 20
)

// Delivery names one delivery of a message. It is current until it is settled or another consumer claims the
// message, even if its lease has expired. All settlements obey one rule: if the delivery is no longer current, the
// settlement has no effect and is reported as stale.
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
	Metadata []byte        // metadata of the next deliveries; nil keeps the old
	Deferred bool          // the delivery does not count
	Reason   string        // if not empty, the message is buried for it
	Error    string        // the handler's error, if known; appended to the reason if the message is buried
}

// LastErrorMetadata is the key of a delivery's error in the metadata of a Nack. It is not part of the
// message, and handlers do not see it.
const LastErrorMetadata = "_redisdelay_last_error"

// decision returns the handler's decision and its details as nack.lua reads them.
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

// Release is a message that no handler has seen, to return to the queue.
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

// Acked is the result of an Ack.
type Acked struct {
	Stale []string // ids of deliveries that are no longer current
	Room  bool     // the group was at its limit, or an ordering key has a next message
}

// maxAcked is how many messages one call acks. For each, it reads and writes the list of groups that need it: 6 kB with 100 groups
// whose names have 60 bytes, as those of Broadcast do.
const maxAcked = 250

// Ack removes any number of handled messages for the group. After an error, some may be acked.
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

// sized returns how many values fit into one call, at least one.
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

// Nack makes any number of messages due again after a delay, or dead messages. If maxDeliveries is above 0, it buries
// those that had as many deliveries. Like Extend, Release and Bury, it returns the ids of the stale deliveries. If it
// returns an error, its results are valid, and the other nacks may have run, too.
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
		ids, more := reply.Texts(), buriedIn(&reply)
		if err := reply.End(); err != nil {
			return stale, buried, err
		}
		stale, buried = append(stale, ids...), append(buried, more...)
	}
	return stale, buried, nil
}

// Heartbeat reports that a consumer is alive.
type Heartbeat struct {
	Consumer string
	Lease    time.Duration
	Presence Presence
}

// Extend renews leases. Messages that a handler has count as delivered from now on, even if their
// consumer is lost. Without messages, it only reports that the consumer is alive.
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

// Release returns messages to the queue with their old due times. The deliveries do not count.
func (g *Group) Release(ctx context.Context, releases []Release) ([]string, error) {
	args := []any{g.name, g.partition.Channel()}
	for _, r := range releases {
		args = append(args, r.ID, r.Receipt, r.DueAt.UnixMilli(), script.Milliseconds(r.Age))
	}
	return g.RunForTexts(ctx, releaseScript, args)
}

// MaxReasonBytes is the maximum length of the reason of a dead message.
const MaxReasonBytes = 1000

// Reason returns a text as a reason that operators can read, cut to MaxReasonBytes.
func Reason(text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "?"))
	if len(text) > MaxReasonBytes {
		text = strings.ToValidUTF8(text[:MaxReasonBytes], "") // without half a character
	}
	return text
}

// Bury makes messages that the caller has in delivery dead messages.
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

// BuryAny makes up to MaxMessages messages dead messages, whether they wait for the group or are in
// delivery. It returns the ids of those that do neither, unless they are dead for this reason
// already. A late copy of the call does not bury messages that were requeued since.
func (g *Group) BuryAny(ctx context.Context, reason string, ids []string) (left []string, err error) {
	now, err := g.partition.Now(ctx)
	if err != nil {
		return nil, err
	}
	args := []any{g.name, g.partition.Channel(), now + script.RemainingTime(ctx).Milliseconds()}
	for _, id := range ids {
		args = append(args, id, "", reason)
	}
	return g.RunForTexts(ctx, buryScript, args)
}

// Requeue makes dead messages due again and resets their delivery counts, if they were buried up to
// latest, a time in ms by Redis's clock. It returns the ids of the others.
func Requeue(ctx context.Context, g *Group, ids []string, latest int64) ([]string, error) {
	return g.RunForTexts(ctx, requeueScript, append([]any{g.Name(), g.Partition().Channel(), latest}, script.Strings(ids)...))
}

// Discard removes dead messages permanently if they were buried up to latest, a time in ms by
// Redis's clock. It returns the ids of the others.
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
