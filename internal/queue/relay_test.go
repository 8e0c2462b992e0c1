package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// entryOf returns an entry of a stream for a message.
func entryOf(id, receipt string) Entry {
	return Entry{Delivery: Delivery{id, receipt}, Size: 1, Values: []any{"id", id, "body", "of " + id}}
}

// relay moves messages to a stream and returns the stale ones.
func (r *scene) relay(g *Group, stream Stream, entries ...Entry) []string {
	r.T.Helper()
	relayed, err := g.Relay(r.Ctx(), stream, entries)
	require.NoError(r.T, err)
	return relayed.Stale
}

// stream returns the stream of the test.
func (r *scene) stream() Stream { return Stream{Key: r.partition.Topic()} }

// entries returns the ids in the stream.
func (r *scene) entries() (ids []string) {
	r.T.Helper()
	messages, err := r.Client.XRange(r.Ctx(), r.stream().Key, "-", "+").Result()
	require.NoError(r.T, err)
	for _, m := range messages {
		id := m.Values["id"].(string)
		require.Equal(r.T, map[string]any{"id": id, "body": "of " + id}, m.Values)
		ids = append(ids, id)
	}
	return ids
}

func TestAStreamOfTheWrongTypeIsAnErrorWithoutChanges(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"))
	r.claim(g, "c", 1)
	require.NoError(t, r.Client.Set(t.Context(), r.stream().Key, "text", 0).Err())
	before := r.State()
	_, err := g.Relay(t.Context(), r.stream(), []Entry{entryOf("a", "1")})
	var wrong *script.WrongTypeError
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, script.WrongTypeError{Key: r.stream().Key, Type: "string", Want: "stream", Err: wrong.Err}, *wrong)
	assert.Equal(t, before, r.State())
}

func TestRelayTrimsTheStream(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	var entries []Entry
	for i := range 1000 {
		id := fmt.Sprintf("%04d", i)
		r.push(due(id))
		entries = append(entries, entryOf(id, "1"))
	}
	require.Len(t, r.claim(g, "c", 1000), 1000)
	r.relay(g, Stream{Key: r.stream().Key, MaxLen: 100}, entries...)
	assert.InDelta(t, 100, r.Client.XLen(t.Context(), r.stream().Key).Val(), 100, "about")
	assert.Equal(t, map[string]string{"groups g": "member"}, r.State())
}

// TestRelayOfEntriesWithDifferentFields makes several calls.
func TestRelayOfEntriesWithDifferentFields(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"))
	r.claim(g, "c", 10)
	wide := Entry{Delivery: Delivery{"b", "1"}, Values: []any{"id", "b", "n", 7, "bytes", []byte{0, 255}}}
	r.relay(g, r.stream(), entryOf("a", "1"), wide, entryOf("c", "1"))
	got, err := r.Client.XRange(t.Context(), r.stream().Key, "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, got, 3)
	assert.Equal(t, map[string]any{"id": "b", "n": "7", "bytes": "\x00\xff"}, got[1].Values)
	assert.Equal(t, map[string]string{"groups g": "member"}, r.State())
}

// TestATornRelayLosesNothing, but the stream may have a message twice: a restart of Redis may
// repeat the first part of the script.
func TestATornRelayLosesNothing(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		tornEverywhere(t, "relay, sent again "+when+" the restart,", func(r *scene) {
			g, h := r.group("g"), r.group("h")
			r.push(due("a"))
			require.Len(r.T, r.claim(g, "c", 1), 1)
			require.Len(r.T, r.claim(h, "e", 1), 1)
			r.relay(g, r.stream(), entryOf("a", "1"))
		}, func(r *scene) {
			if when == "after" {
				r.Reload()
			}
			r.relay(r.partition.Group("g"), r.stream(), entryOf("a", "1")) // again, since it got no answer
			r.Reload()
			got := r.entries()
			assert.Contains(r.T, got, "a")
			assert.LessOrEqual(r.T, len(got), 2)
			h := r.partition.Group("h")
			nack(r.T, h, Nack{Delivery: Delivery{"a", "1"}})
			require.Equal(r.T, []string{"a#2/1/1"}, r.claim(h, "e", 1), "it still needs the message")
			ack(r.T, h, "a#2/1/1")
			assert.Equal(r.T, map[string]string{"groups g": "member", "groups h": "member"}, r.State())
		})
	}
}

func TestCanRelayNeedsTheSameSlot(t *testing.T) {
	assert.True(t, newScene(t).partition.Group("g").CanRelay("anything"))

	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"localhost:1"}})
	t.Cleanup(func() { _ = client.Close() })
	g := newStore(t, client).Topic("t").Partition(0).Group("g")
	assert.False(t, g.CanRelay("t"))
	assert.True(t, g.CanRelay("{test:t:0}"))
	assert.True(t, g.CanRelay("orders{test:t:0}{other}"))
	assert.False(t, g.CanRelay("{}{test:t:0}"), "an empty tag is none")
}

func TestRelayOnAClusterInOneSlot(t *testing.T) {
	client := redistest.SharedCluster(t).Client(t)
	topic := ""
	for {
		topic = fmt.Sprint(t.Name(), rand.Uint64())
		if script.SlotOf(topic) == script.NewKeyNames("test", topic, 0).Slot() {
			break
		}
	}
	p := newStore(t, client).Topic(topic).Partition(0)
	g := p.Group("g")
	require.True(t, g.CanRelay(topic))
	require.NoError(t, g.Register(t.Context()))
	_, err := p.Push(t.Context(), Batch{Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{due("a")}}})
	require.NoError(t, err)
	_, err = g.Claim(context.Background(), ClaimRequest{Consumer: "c", Number: 1, Limit: 1, Free: 1, Lease: lease})
	require.NoError(t, err)
	relayed, err := g.Relay(t.Context(), Stream{Key: topic}, []Entry{entryOf("a", "1")})
	require.NoError(t, err)
	assert.Empty(t, relayed.Stale)
	assert.EqualValues(t, 1, client.XLen(t.Context(), topic).Val())
}
