package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// maxRelayed is how many messages one call moves: adding to a stream takes longer than other
// writes.
const maxRelayed = 500

// maxRelayedValues is how many arguments of a call are for messages. With its keys, a call has fewer than 3,900 arguments,
// because some hosted servers refuse more.
const maxRelayedValues = 3800

// maxRelayedBytes is how many bytes of messages one call moves.
const maxRelayedBytes = 4 << 20

// ErrOtherSlot is returned by Relay if the stream is in another Cluster slot than the messages, and
// the client does not know that it uses a Cluster. Nothing was added.
var ErrOtherSlot = errors.New("the stream is in another slot than the messages")

// Stream is a Redis stream on the server of the messages.
type Stream struct {
	Key    string
	MaxLen int64 // about how many entries it keeps; 0: all
}

// Entry is a message that becomes an entry of a stream.
type Entry struct {
	Delivery
	Size   int   // of the message's body, in bytes
	Values []any // fields and values in turn
}

// Relayed is what a Relay did.
type Relayed struct {
	Stale []string // ids of deliveries that are no longer current; they were not added
	Room  bool     // the group was at its limit, or an ordering key has a next message
}

// CanRelay reports whether Relay can reach a stream: its key must be in the slot of the group's keys.
func (g *Group) CanRelay(stream string) bool {
	return g.partition.Client().Cluster() == nil || script.SlotOf(stream) == g.partition.Slot()
}

// Relay adds messages that the caller holds to a stream, in order, and acks them, each in one step.
// After an error other than ErrOtherSlot, any of them may have been moved. A repeated call with the
// same deliveries adds none twice.
func (g *Group) Relay(ctx context.Context, stream Stream, entries []Entry) (relayed Relayed, err error) {
	for len(entries) > 0 {
		n := 1
		most := min(len(entries), maxRelayed, maxRelayedValues/(2+len(entries[0].Values)))
		for size := entries[0].Size; n < most; n++ {
			size += entries[n].Size
			if size > maxRelayedBytes || len(entries[n].Values) != len(entries[0].Values) {
				break
			}
		}
		if err := g.relay(ctx, stream, entries[:n], &relayed); err != nil {
			return relayed, err
		}
		entries = entries[n:]
	}
	return relayed, nil
}

// relay moves entries with the same number of values.
func (g *Group) relay(ctx context.Context, stream Stream, entries []Entry, relayed *Relayed) error {
	keys := append(g.partition.Keys(relayScript, g.name), stream.Key)
	args := []any{g.name, g.partition.Channel(), stream.MaxLen, len(entries[0].Values)}
	for _, e := range entries {
		args = append(append(args, e.ID, e.Receipt), e.Values...)
	}
	reply, err := g.partition.Client().Run(ctx, g.partition.Call(relayScript, keys, args))
	if redis.HasErrorPrefix(err, "CROSSSLOT") {
		return fmt.Errorf("%w: %w", ErrOtherSlot, err)
	}
	if err != nil {
		return err
	}
	stale, room := reply.Texts(), reply.Texts()
	relayed.Stale, relayed.Room = append(relayed.Stale, stale...), relayed.Room || len(room) > 0
	return reply.End()
}
