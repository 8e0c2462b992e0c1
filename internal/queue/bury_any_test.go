package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestAPersonBuriesWhatWaitsAndWhatIsInDelivery(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	held, waits, planned, dead := keyed(1, "held"), "waits", "planned", "dead"
	r.push(due(held), due(waits), due(dead))
	require.Len(t, r.claim(g, "c", 3), 3)
	nack(t, g, Nack{Delivery: Delivery{waits, "1"}, Delay: time.Minute, Metadata: []byte("changed")})
	_, err := g.Bury(t.Context(), []Burial{{Delivery{dead, "1"}, "before"}})
	require.NoError(t, err)
	r.push(after(planned, 60))

	left, err := g.BuryAny(t.Context(), "by anna", []string{held, waits, planned, dead, "unknown"})
	require.NoError(t, err)
	assert.Equal(t, []string{planned, dead, "unknown"}, left)
	want := map[string]string{
		"groups g":          "member",
		"dead:g " + held:    "now+0s",
		"reasons:g " + held: "by anna",
		"messages " + held:  "body " + held,
		"keys held":         "!" + held,
		"dead:g waits":      "now+0s", "reasons:g waits": "by anna", "messages waits": "body waits",
		"attempts:g waits": "1/1/0", "changed:g waits": "changed",
		"dead:g dead": "now+0s", "reasons:g dead": "before", "messages dead": "body dead",
		"scheduled planned": "now+60s", "messages planned": "body planned",
	}
	assert.Equal(t, want, r.State())
	stale, err := g.Extend(t.Context(), Heartbeat{Lease: lease}, []Held{handedOut(held, "1")})
	require.NoError(t, err)
	assert.Equal(t, []string{held}, stale, "the handler learns it")
	stale, _, err = g.Nack(t.Context(), 0, []Nack{{Delivery: Delivery{held, "1"}}})
	require.NoError(t, err)
	assert.Equal(t, []string{held}, stale)
	left, err = g.BuryAny(t.Context(), "by anna", []string{held, waits})
	require.NoError(t, err)
	assert.Empty(t, left, "sent again")
	assert.Equal(t, want, r.State())
}

func TestALateCopyOfABurialChangesNothing(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	require.Len(t, r.claim(g, "c", 1), 1)
	before := r.State()
	reply, err := g.RunForTexts(t.Context(), buryScript, []any{"g", "wake", r.Now().UnixMilli() - 1, "a", "", "bad", "b", "", "bad"})
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, reply)
	assert.Equal(t, before, r.State())
}

// TestABurialMakesRoomUnderALimit for the group's next message.
func TestABurialMakesRoomUnderALimit(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	r.limit("g", Limits{MaxInFlight: 1})
	require.Equal(t, []string{"a#1"}, r.claim(g, "c", 1))
	require.Empty(t, r.claim(g, "c", 1))
	next := r.listen(g, "d")
	require.NoError(t, errOf(g.BuryAny(t.Context(), "bad", []string{"a"})))
	assert.Zero(t, next(), "it can claim now")
	require.Equal(t, []string{"b#1"}, r.claim(g, "c", 1))
}

func TestABurialOfAKeyOfAnotherTypeChangesNothing(t *testing.T) {
	for _, kind := range []string{"unack:g", "dead:g", "reasons:g", "full"} {
		t.Run(kind, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due("a"))
			require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.QueueOf, "g"), z(1, "a")).Err())
			r.FailsOnType(kind, func() error { return errOf(g.BuryAny(r.Ctx(), "bad", []string{"a"})) })
		})
	}
}
