package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fenced are all settlements of a delivery. Each returns the ids that Redis reports as stale.
var fenced = map[string]func(r *scene, g *Group, d Delivery) ([]string, error){
	"ack": func(r *scene, g *Group, d Delivery) ([]string, error) {
		acked, err := g.Ack(r.Ctx(), []Done{{Delivery: d}})
		return acked.Stale, err
	},
	"relay": func(r *scene, g *Group, d Delivery) ([]string, error) {
		relayed, err := g.Relay(r.Ctx(), r.stream(), []Entry{entryOf(d.ID, d.Token)})
		return relayed.Stale, err
	},
	"nack": func(r *scene, g *Group, d Delivery) ([]string, error) {
		stale, _, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: d, Delay: time.Hour, Metadata: []byte("changed")}})
		return stale, err
	},
	"last nack": func(r *scene, g *Group, d Delivery) ([]string, error) {
		stale, _, err := g.Nack(r.Ctx(), 1, []Nack{{Delivery: d}})
		return stale, err
	},
	"defer": func(r *scene, g *Group, d Delivery) ([]string, error) {
		stale, _, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: d, Delay: time.Hour, Deferred: true}})
		return stale, err
	},
	"bury by a handler": func(r *scene, g *Group, d Delivery) ([]string, error) {
		stale, _, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: d, Reason: "hopeless"}})
		return stale, err
	},
	"bury": func(r *scene, g *Group, d Delivery) ([]string, error) {
		return g.Bury(r.Ctx(), []Burial{{d, "bad"}})
	},
	"release": func(r *scene, g *Group, d Delivery) ([]string, error) {
		return g.Release(r.Ctx(), []Release{{Delivery: d, DueAt: time.UnixMilli(7)}})
	},
	"extend": func(r *scene, g *Group, d Delivery) ([]string, error) {
		return g.Extend(r.Ctx(), Heartbeat{Consumer: "late", Lease: time.Hour}, []Held{{Delivery: d, HandedOut: true}})
	},
}

// TestAStaleSettlementHasNoEffect: the lease of a consumer has expired and another consumer works on the message.
func TestAStaleSettlementHasNoEffect(t *testing.T) {
	for name, settle := range fenced {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due("a"), due(a1), due(a2))
			r.claim(g, "late", 10)
			r.Expire("g", "a")
			r.Expire("g", a1)
			require.ElementsMatch(t, tokens("2/0/1", "a", a1), r.claim(g, "current", 10))
			before := r.State()

			for _, id := range []string{"a", a1} {
				stale, err := settle(r, g, Delivery{id, "1"})
				require.NoError(t, err)
				assert.Equal(t, []string{id}, stale)
			}
			assert.Equal(t, before, r.State())
			assert.Empty(t, r.entries(), "of the stream")
			assert.Empty(t, r.claim(g, "third", 10), "the ordering key is still busy")

			nack(t, g, Nack{Delivery: Delivery{"a", "2/0/1"}}, Nack{Delivery: Delivery{a1, "2/0/1"}})
			assert.ElementsMatch(t, tokens("3/1/1", "a", a1), r.claim(g, "third", 10))
		})
	}
}

// TestAnExpiredLeaseCanBeSettledUntilTheNextClaim, and a late copy of the settlement changes nothing.
func TestAnExpiredLeaseCanBeSettledUntilTheNextClaim(t *testing.T) {
	for name, settle := range fenced {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due("a"))
			require.Equal(t, tokens("1", "a"), r.claim(g, "c", 1))
			r.Expire("g", "a")
			before := r.State()
			stale, err := settle(r, g, Delivery{"a", "1"})
			require.NoError(t, err)
			assert.Empty(t, stale)
			after := r.State()
			assert.NotEqual(t, before, after)

			_, err = settle(r, g, Delivery{"a", "1"})
			require.NoError(t, err)
			assert.Equal(t, after, r.State())
		})
	}
}
