package inspect

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestATornArrivalIsStoredWhenSentAgain and not twice.
func TestATornArrivalIsStoredWhenSentAgain(t *testing.T) {
	id := keyed(1, "k")
	var arrival Arrival
	arrange := func(r *scene) {
		r.group("g")
		arrival = r.arrival(id, 0)
		require.Equal(r.T, []Outcome{OutcomeStored}, r.arrive(arrival))
	}
	for _, when := range []string{"before", "after"} {
		tornEverywhere(t, "arrive, sent again "+when+" the restart,", arrange, func(r *scene) {
			if when == "after" {
				r.Reload()
			}
			r.arrive(arrival)
			r.Reload()
			g := r.partition.Group("g")
			claims, err := g.Claim(r.Ctx(), r.request("c", 10))
			require.NoError(r.T, err)
			require.Empty(r.T, claims.Buried)
			require.Len(r.T, claims.Messages, 1)
			assert.Equal(r.T, "body "+id, string(claims.Messages[0].Body))
			ack(r.T, g, id)
			assert.Equal(r.T, []Outcome{OutcomeKnown}, r.arrive(arrival))
		})
	}
}

func TestAnArrivalFailsAsAWholeOnAKeyOfAnotherType(t *testing.T) {
	for _, kind := range []string{"scheduled", "messages", "keys", "dedup", "imported"} {
		t.Run(kind, func(t *testing.T) {
			r := newScene(t)
			key := string(r.partition.Names) + ":" + kind
			require.NoError(t, r.Client.Set(t.Context(), key, "x", 0).Err())
			before := r.State()
			var wrong *script.KeyTypeError
			require.ErrorAs(t, errOf(Arrive(r.Ctx(), r.partition, []Arrival{r.arrival(keyed(3, "m"), 60)})), &wrong)
			assert.Equal(t, key, wrong.Key)
			assert.Equal(t, before, r.State())
		})
	}
}

// TestARefusedArrivalLeavesNothing behind if the user loses a right in between.
func TestARefusedArrivalLeavesNothing(t *testing.T) {
	server := redistest.New(t)
	r := newSceneOn(t, server)
	r.push(after(plainID(9), 60))
	before := r.State()
	_, err := Arrive(t.Context(), r.through(r.Deny(server, "hset")), []Arrival{r.arrival(plainID(1), 60)})
	require.Error(t, err)
	require.False(t, redis.HasErrorPrefix(err, "NOSCRIPT"))
	assert.Equal(t, before, r.State())
	assert.Equal(t, []Outcome{OutcomeStored}, r.arrive(r.arrival(plainID(1), 60)))
}
