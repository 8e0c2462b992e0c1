package queue

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// TestATornClaimGivesNoDeliveryToTwoConsumers answers the first consumer's claim only
// after another has claimed, and after the restart that repeats the torn part.
func TestATornClaimGivesNoDeliveryToTwoConsumers(t *testing.T) {
	situations := map[string]func(r *scene){
		"one group": func(r *scene) { r.push(due("a"), due("b")) },
		"two groups": func(r *scene) {
			r.group("h")
			r.push(due("a"), due("b"))
		},
		"claimed before": func(r *scene) {
			r.push(due("a"), due("b"))
			g := r.partition.Group("g")
			require.Len(r.T, r.claim(g, "x", 2), 2)
			nack(r.T, g, Nack{Delivery: Delivery{"a", "1"}})
			r.Expire(g.Name(), "b")
		},
		"one to bury": func(r *scene) {
			r.push(due("a"), due("b"))
			require.NoError(r.T, r.Client.HDel(r.Ctx(), r.partition.Key(script.Messages, ""), "a").Err())
		},
	}
	for name, situation := range situations {
		var request Request
		arrange := func(r *scene) {
			g := r.group("g")
			situation(r)
			request = r.request("c", 10)
			require.NotEmpty(r.T, r.claimWith(g, request))
		}
		tornEverywhere(t, name, arrange, func(r *scene) {
			g := r.partition.Group("g")
			others := r.claim(g, "d", 10)
			require.NotEmpty(r.T, others)
			r.Reload()
			for _, delivery := range r.claimWith(g, request) {
				assert.NotContains(r.T, others, delivery)
			}
			for _, delivery := range others {
				id, _, _ := strings.Cut(delivery, "#")
				acked, err := g.Ack(r.Ctx(), done(id))
				require.NoError(r.T, err)
				assert.Empty(r.T, acked.Missing)
			}
		})
		tornEverywhere(t, name+", sent again first", arrange, func(r *scene) {
			g := r.partition.Group("g")
			r.Reload()
			first := r.claimWith(g, request)
			for _, delivery := range r.claim(g, "d", 10) {
				assert.NotContains(r.T, first, delivery)
			}
		})
	}
}

// TestATornClaimLosesNothing when its consumer is gone and nothing happens in between.
func TestATornClaimLosesNothing(t *testing.T) {
	for _, groups := range []int{1, 2} {
		arrange := func(r *scene) {
			g := r.group("g")
			if groups > 1 {
				r.group("h")
			}
			r.push(due("a"), due("b"))
			require.Len(r.T, r.claim(g, "c", 10), 2)
		}
		tornEverywhere(t, fmt.Sprint("claim of ", groups, " groups"), arrange, func(r *scene) {
			r.Reload() // nothing happens in between
			names := []string{"g", "h"}[:groups]
			for _, name := range names {
				g := r.partition.Group(name)
				for _, id := range r.Client.ZRange(r.Ctx(), r.partition.Key(script.UnackOf, name), 0, -1).Val() {
					r.Expire(g.Name(), id)
				}
				claims, err := g.Claim(r.Ctx(), r.request("d", 10))
				require.NoError(r.T, err)
				assert.Empty(r.T, claims.Buried)
				require.Len(r.T, claims.Messages, 2)
				ack(r.T, g, "a", "b")
			}
			assert.Len(r.T, r.State(), groups, "only the groups are left")
		})
	}
}
