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
			require.Len(r.t, r.claim(g, "x", 2), 2)
			nack(r.t, g, Nack{Delivery: Delivery{"a", "1"}})
			r.expire(g, "b")
		},
		"one to bury": func(r *scene) {
			r.push(due("a"), due("b"))
			require.NoError(r.t, r.client.HDel(r.ctx(), r.partition.Key(script.Messages, ""), "a").Err())
		},
	}
	for name, situation := range situations {
		var request Request
		arrange := func(r *scene) {
			g := r.group("g")
			situation(r)
			request = r.request("c", 10)
			require.NotEmpty(r.t, r.claimWith(g, request))
		}
		tornEverywhere(t, name, arrange, func(r *scene) {
			g := r.partition.Group("g")
			others := r.claim(g, "d", 10)
			require.NotEmpty(r.t, others)
			r.reload()
			for _, delivery := range r.claimWith(g, request) {
				assert.NotContains(r.t, others, delivery)
			}
			for _, delivery := range others {
				id, _, _ := strings.Cut(delivery, "#")
				acked, err := g.Ack(r.ctx(), done(id))
				require.NoError(r.t, err)
				assert.Empty(r.t, acked.Missing)
			}
		})
		tornEverywhere(t, name+", sent again first", arrange, func(r *scene) {
			g := r.partition.Group("g")
			r.reload()
			first := r.claimWith(g, request)
			for _, delivery := range r.claim(g, "d", 10) {
				assert.NotContains(r.t, first, delivery)
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
			require.Len(r.t, r.claim(g, "c", 10), 2)
		}
		tornEverywhere(t, fmt.Sprint("claim of ", groups, " groups"), arrange, func(r *scene) {
			r.reload() // nothing happens in between
			names := []string{"g", "h"}[:groups]
			for _, name := range names {
				g := r.partition.Group(name)
				for _, id := range r.client.ZRange(r.ctx(), r.partition.Key(script.UnackOf, name), 0, -1).Val() {
					r.expire(g, id)
				}
				claims, err := g.Claim(r.ctx(), r.request("d", 10))
				require.NoError(r.t, err)
				assert.Empty(r.t, claims.Buried)
				require.Len(r.t, claims.Messages, 2)
				ack(r.t, g, "a", "b")
			}
			assert.Len(r.t, r.state(), groups, "only the groups are left")
		})
	}
}
