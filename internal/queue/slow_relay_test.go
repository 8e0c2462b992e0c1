package queue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// TestRelayTakesNoMoreThanTenMilliseconds in each of its calls.
func TestRelayTakesNoMoreThanTenMilliseconds(t *testing.T) {
	notSlow(t, map[string]func(r *scene, g *Group) func(){
		"relay 1,000 small messages":    relayAll(1000, 100, 1),
		"relay bodies of 512 KiB":       relayAll(40, mebibyte/2, 1),
		"relay for one of 1,000 groups": relayAll(500, 100, 1000),
	})
}

// relayAll hands on messages with bodies of a size that this many groups need.
func relayAll(count, size, groups int) func(r *scene, g *Group) func() {
	return func(r *scene, g *Group) func() {
		ids := r.Store(r.partition.Key(script.UnackOf, "g"), count, size)
		if groups > 1 {
			r.DifferentRefs(ids, groups)
		}
		var entries []Entry
		for _, id := range ids {
			entries = append(entries, Entry{
				Delivery: Delivery{id, "1"}, Size: size,
				Values: []any{"uuid", id, "metadata", make([]byte, 100), "payload", make([]byte, size)},
			})
		}
		return func() {
			require.Empty(r.T, r.relay(g, r.stream(), entries...))
			require.EqualValues(r.T, count, r.Client.XLen(r.Ctx(), r.stream().Key).Val())
			require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.UnackOf, "g")).Val())
		}
	}
}
