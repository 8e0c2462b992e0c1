package queue

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestATornDepartureLosesNothing: what comes back in both places stays where it was.
func TestATornDepartureLosesNothing(t *testing.T) {
	id := keyed(1, "k")
	var d Departure
	arrange := func(r *scene) {
		r.push(after(id, 60))
		d = departure(InScheduled, id)
		require.Len(r.t, r.depart(r.partition.Group(""), d), 1)
	}
	tornEverywhere(t, "depart", arrange, func(r *scene) {
		none := r.partition.Group("")
		r.reload()
		for _, m := range r.movesOf() {
			moves, _, err := none.Carry(r.ctx(), m.Batch, []string{m.ID})
			require.NoError(r.t, err)
			require.Len(r.t, moves, 1)
			_, here := r.state()["scheduled "+id]
			require.Equal(r.t, here, moves[0].Here)
			r.endMove(none, m.Batch, false, m.ID)
		}
		assert.Equal(r.t, map[string]string{"scheduled " + id: "now+60s", "messages " + id: "body " + id, "keys k": id}, r.state())
	})
	tornEverywhere(t, "depart, sent again,", arrange, func(r *scene) {
		none := r.partition.Group("")
		require.Len(r.t, r.depart(none, d), 1)
		r.reload()
		assert.Len(r.t, r.movesOf(), 1)
		assert.NotContains(r.t, r.state(), "scheduled "+id)
		r.endMove(none, d.Batch, true, id)
		assert.Empty(r.t, r.state())
	})
}

// TestWhatIsAlreadyBackKeepsItsTime although a torn file has left it in moving, too.
func TestWhatIsAlreadyBackKeepsItsTime(t *testing.T) {
	r := newScene(t)
	none := r.partition.Group("")
	r.push(after("a", 60))
	d := departure(InScheduled, "a")
	require.Len(t, r.depart(none, d), 1)
	later := float64(r.now().Add(2 * time.Minute).UnixMilli())
	require.NoError(t, r.client.ZAdd(t.Context(), r.partition.names.key(scheduled), z(later, "a")).Err())
	r.endMove(none, d.Batch, false, "a")
	assert.Equal(t, map[string]string{"scheduled a": "now+120s", "messages a": "body a"}, r.state())
}

// TestATornArrivalIsStoredWhenSentAgain and not twice.
func TestATornArrivalIsStoredWhenSentAgain(t *testing.T) {
	id := keyed(1, "k")
	var arrival Arrival
	arrange := func(r *scene) {
		r.group("g")
		arrival = r.arrival(id, 0)
		require.Equal(r.t, []Outcome{OutcomeStored}, r.arrive(arrival))
	}
	for _, when := range []string{"before", "after"} {
		tornEverywhere(t, "arrive, sent again "+when+" the restart,", arrange, func(r *scene) {
			if when == "after" {
				r.reload()
			}
			r.arrive(arrival)
			r.reload()
			g := r.partition.Group("g")
			claims, err := g.Claim(r.ctx(), r.request("c", 10))
			require.NoError(r.t, err)
			require.Empty(r.t, claims.Buried)
			require.Len(r.t, claims.Messages, 1)
			assert.Equal(r.t, "body "+id, string(claims.Messages[0].Body))
			ack(r.t, g, id)
			assert.Equal(r.t, []Outcome{OutcomeKnown}, r.arrive(arrival))
		})
	}
}

// TestATornEndOfAMoveIsEndedWhenSentAgain.
func TestATornEndOfAMoveIsEndedWhenSentAgain(t *testing.T) {
	id := keyed(1, "k")
	for _, arrived := range []bool{true, false} {
		var d Departure
		var before map[string]string
		arrange := func(r *scene) {
			g := r.group("g")
			r.push(due(id))
			r.bury(g, id)
			before = r.state()
			d = departure(InDead, id)
			require.Len(r.t, r.depart(g, d), 1)
			r.endMove(g, d.Batch, arrived, id)
		}
		tornEverywhere(t, "departed", arrange, func(r *scene) {
			g := r.partition.Group("g")
			r.reload()
			r.endMove(g, d.Batch, arrived, id)
			want := before
			if arrived {
				want = map[string]string{"groups g": "member"}
			}
			assert.Equal(r.t, want, r.state())
		})
	}
}

func TestAMoveFailsAsAWholeOnAKeyOfAnotherType(t *testing.T) {
	calls := map[string]func(r *scene, g *Group, d Departure) error{
		"depart": func(r *scene, g *Group, d Departure) error { return errOf(g.Depart(r.ctx(), d)) },
		"end": func(r *scene, g *Group, d Departure) error {
			return g.EndMove(r.ctx(), d.Batch, []Ending{{keyed(1, "k"), true}, {keyed(2, "l"), false}})
		},
		"arrive": func(r *scene, _ *Group, _ Departure) error {
			return errOf(r.partition.Arrive(r.ctx(), time.Hour, []Arrival{r.arrival(keyed(3, "m"), 60)}))
		},
	}
	kinds := map[string][]string{
		"depart": {"moving", "publishers", "messages", "refs", "keys", "dead:g"},
		"end": {
			"moving", "publishers", "scheduled", "messages", "refs", "keys", "control", "arrived", "queue:g", "dead:g",
			"attempts:g", "reasons:g", "changed:g",
		},
		"arrive": {"scheduled", "messages", "keys", "taken", "moving", "arrived"},
	}
	for name, call := range calls {
		for _, kind := range kinds[name] {
			t.Run(name+" "+kind, func(t *testing.T) {
				r := newScene(t)
				g := r.group("g")
				ids := []string{keyed(1, "k"), keyed(2, "l")}
				for _, id := range ids {
					r.push(due(id))
					r.bury(g, id)
				}
				d := departure(InDead, ids...)
				if name == "end" {
					require.Len(t, r.depart(g, d), 2)
				}
				key := string(r.partition.names) + ":" + kind
				require.NoError(t, r.client.Del(t.Context(), key).Err())
				require.NoError(t, r.client.Set(t.Context(), key, "x", 0).Err())
				before := r.state()
				var wrong *KeyTypeError
				require.ErrorAs(t, call(r, g, d), &wrong)
				assert.Equal(t, key, wrong.Key)
				assert.Equal(t, before, r.state())
			})
		}
	}
}

// TestARefusedArrivalLeavesNothing behind if the user loses a right in between.
func TestARefusedArrivalLeavesNothing(t *testing.T) {
	server := redistest.New(t)
	r := newSceneOn(t, server)
	r.push(after(plainID(9), 60))
	before := r.state()
	_, err := r.through(r.deny(server, "hset")).Arrive(t.Context(), time.Hour, []Arrival{r.arrival(plainID(1), 60)})
	require.Error(t, err)
	require.False(t, redis.HasErrorPrefix(err, "NOSCRIPT"))
	assert.Equal(t, before, r.state())
	assert.Equal(t, []Outcome{OutcomeStored}, r.arrive(r.arrival(plainID(1), 60)))
}
