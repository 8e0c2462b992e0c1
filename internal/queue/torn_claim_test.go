package queue

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// TestATornClaimLosesNothingAndGivesNoDeliveryToTwoConsumers answers the first consumer's claim only
// after another has claimed, and after the restart that repeats the torn part; or never.
func TestATornClaimLosesNothingAndGivesNoDeliveryToTwoConsumers(t *testing.T) {
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
		var delivered []string
		arrange := func(r *scene) {
			g := r.group("g")
			situation(r)
			request = r.request("c", 10)
			delivered = r.claimWith(g, request)
			require.NotEmpty(r.T, delivered)
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
		tornEverywhere(t, name+", and its consumer is gone", arrange, func(r *scene) {
			r.Reload()
			for _, group := range r.Client.SMembers(r.Ctx(), r.partition.Key(script.Groups, "")).Val() {
				assert.Subset(r.T, r.drain(r.partition.Group(group)), r.ids(delivered), "group %s", group)
			}
			for field := range r.State() {
				assert.Contains(r.T, field, "groups ", "only the groups are left")
			}
		})
	}
}
