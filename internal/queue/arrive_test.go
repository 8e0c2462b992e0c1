package queue

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// arrival is a message that is due in so many seconds.
func (r *scene) arrival(id string, seconds int) Arrival {
	return Arrival{ID: id, DueAt: r.now().Add(time.Duration(seconds) * time.Second), Body: []byte("body " + id)}
}

func (r *scene) arrive(messages ...Arrival) []Outcome {
	r.t.Helper()
	outcomes, err := r.partition.Arrive(r.ctx(), time.Hour, messages)
	require.NoError(r.t, err)
	return outcomes
}

func TestWhatArrivesIsStoredOnceEvenIfItIsDone(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	plain, id := plainID(1), keyed(2, "k")
	arrivals := []Arrival{r.arrival(plain, 60), {ID: id, Body: []byte("body " + id)}, r.arrival(plain, 60)}
	assert.Equal(t, []Outcome{OutcomeStored, OutcomeStored, OutcomeKnown}, r.arrive(arrivals...))
	want := map[string]string{
		"groups g": "member", "scheduled " + plain: "now+60s", "scheduled " + id: "now+0s", "keys k": id,
		"messages " + plain: "body " + plain, "messages " + id: "body " + id,
		"arrived " + plain: "now+3600s", "arrived " + plainID(2): "now+3600s",
	}
	assert.Equal(t, want, r.state())
	again := []Outcome{OutcomeKnown, OutcomeKnown, OutcomeKnown}
	assert.Equal(t, again, r.arrive(arrivals...))
	assert.Equal(t, want, r.state())

	require.Equal(t, []string{id + "#1"}, r.claim(g, "c", 10))
	ack(t, g, id)
	before := r.state()
	assert.Equal(t, again, r.arrive(arrivals...))
	assert.Equal(t, before, r.state())
	require.NoError(t, r.client.Del(t.Context(), r.partition.names.key(arrived)).Err())
	outcomes, err := r.partition.Arrived(t.Context(), []Arrival{{ID: plain}, {ID: id}})
	require.NoError(t, err)
	assert.Equal(t, []Outcome{OutcomeKnown, OutcomeAbsent}, outcomes, "the first is there, the second was")
	assert.NotContains(t, r.state(), "arrived "+plain, "a look changes nothing")
}

func TestDueTimesArriveToTheMillisecond(t *testing.T) {
	r := newScene(t)
	for n, ms := range []int64{1, 1763800000123, 4102444800999} {
		r.arrive(Arrival{ID: plainID(n), DueAt: time.UnixMilli(ms), Body: []byte("x")})
		score := r.client.ZScore(t.Context(), r.partition.names.key(scheduled), plainID(n)).Val()
		assert.Equal(t, strconv.FormatInt(ms, 10), strconv.FormatFloat(score, 'f', -1, 64))
	}
}

func TestAKeyInUseStaysWithItsHolder(t *testing.T) {
	r := newScene(t)
	holder := keyed(1, "held")
	r.push(after(holder, 60))
	r.pushWindow(1<<41, RejectDuplicates, []Message{after(keyed(2, "window"), 60)})
	require.NoError(t, r.client.HDel(t.Context(), r.partition.names.key(messages), keyed(2, "window")).Err())
	require.NoError(t, r.client.HSet(t.Context(), r.partition.names.key(messageKeys), "free", keyed(3, "free")).Err())
	before := r.state()
	assert.Equal(t, []Outcome{OutcomeTaken, OutcomeTaken}, r.arrive(r.arrival(keyed(5, "held"), 60), r.arrival(keyed(6, "window"), 60)))
	assert.Equal(t, before, r.state())
	assert.Equal(t, []Outcome{OutcomeStored, OutcomeTaken}, r.arrive(r.arrival(keyed(7, "free"), 60), r.arrival(keyed(8, "free"), 60)))
	assert.Equal(t, keyed(7, "free"), r.state()["keys free"], "its holder had no body")
}

// TestTwoMovesOfOneMessageMeet, one back and one interrupted: neither takes the body that the
// other is moving for its own.
func TestTwoMovesOfOneMessageMeet(t *testing.T) {
	r := newScene(t)
	none := r.partition.Group("")
	id := plainID(1)
	r.push(after(id, 60))
	d := departure(InScheduled, id)
	require.Len(t, r.depart(none, d), 1)
	before := r.state()
	assert.Equal(t, []Outcome{OutcomeMoving}, r.arrive(r.arrival(id, 60)))
	assert.Equal(t, before, r.state())
	r.endMove(none, d.Batch, true, id)
	back, again := r.arrival(id, 60), r.arrival(id, 60)
	back.Move, again.Move = NewBatch(), NewBatch()
	assert.Equal(t, []Outcome{OutcomeStored}, r.arrive(back), "it may come back")
	d = departure(InScheduled, id)
	require.Len(t, r.depart(none, d), 1)
	assert.Equal(t, []Outcome{OutcomeMoving}, r.arrive(again), "it is moved on, and comes back once more")
	assert.Equal(t, []Outcome{OutcomeKnown}, r.arrive(back), "this has arrived, and is moved on")
	r.endMove(none, d.Batch, true, id)
	before = r.state()
	assert.Equal(t, []Outcome{OutcomeKnown}, r.arrive(back), "however late it is sent again")
	assert.Equal(t, before, r.state())
	assert.Equal(t, []Outcome{OutcomeStored}, r.arrive(again))
}

// TestAnArrivalDoesNotEndAnotherMoveOfTheMessage: since the first one, it may have been copied back
// to where it comes from.
func TestAnArrivalDoesNotEndAnotherMoveOfTheMessage(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	first := Arrival{ID: plainID(1), Move: NewBatch(), Body: []byte("body")}
	second := Arrival{ID: plainID(1), Move: NewBatch(), Body: []byte("body")}
	assert.Equal(t, []Outcome{OutcomeStored, OutcomeKnown}, r.arrive(first, second), "it is there")
	require.Len(t, r.claim(g, "c", 1), 1)
	ack(t, g, plainID(1))
	third := Arrival{ID: plainID(1), Move: NewBatch(), Body: []byte("body")}
	assert.Equal(t, []Outcome{OutcomeKnown, OutcomeKnown, OutcomePast}, r.arrive(first, second, third))
	assert.Equal(t, []Outcome{OutcomeKnown}, r.arrive(Arrival{ID: plainID(1)}), "a copy")
}

func TestALateArrivalStoresNothing(t *testing.T) {
	r := newScene(t)
	args := []any{r.now().Add(-time.Second).UnixMilli(), 1000, "wake", "store", plainID(1), "", "", "body"}
	reply, err := r.partition.run(t.Context(), arriveScript, arriveScript.keys(r.partition.names, "", nil), args)
	require.NoError(t, err)
	require.Len(t, reply, 2)
	assert.Equal(t, "late", reply[1])
	assert.Empty(t, r.state())
}

func TestArrivalsAreForgottenInTheEnd(t *testing.T) {
	r := newScene(t)
	key := r.partition.names.key(arrived)
	var old []redis.Z
	for n := range 2500 {
		old = append(old, redis.Z{Score: 1000, Member: fmt.Sprint(n)})
	}
	require.NoError(t, r.client.ZAdd(t.Context(), key, old...).Err())
	r.arrive()
	assert.Equal(t, int64(1500), r.client.ZCard(t.Context(), key).Val())
	assert.Negative(t, r.client.TTL(t.Context(), key).Val(), "freeing many at once would take long")
	r.arrive()
	r.arrive(Arrival{ID: plainID(1)})
	assert.Equal(t, int64(1), r.client.ZCard(t.Context(), key).Val())
	assert.InDelta(t, time.Hour.Seconds(), r.client.TTL(t.Context(), key).Val().Seconds(), 60)
}

func TestArrivalsWakeTheGroups(t *testing.T) {
	r := newScene(t)
	next := r.listen(r.group("g"), "c")
	r.arrive(r.arrival(plainID(1), 60))
	assert.InDelta(t, 60, next().In.Seconds(), 5)
}

func TestWithoutMemoryNothingArrivesAndMovesCanEnd(t *testing.T) {
	server := redistest.New(t, "--maxmemory-policy", "noeviction")
	r := newSceneOn(t, server)
	none := r.partition.Group("")
	r.push(after(plainID(1), 60), after(plainID(2), 60))
	redistest.Command(t, r.client, "CONFIG", "SET", "maxmemory", "1")
	before := r.state()
	_, err := r.partition.Arrive(t.Context(), KeepMoved, []Arrival{r.arrival(plainID(3), 60)})
	require.True(t, redis.HasErrorPrefix(err, "OOM"), "%v", err)
	assert.Equal(t, before, r.state())
	d := departure(InScheduled, plainID(1), plainID(2))
	require.Len(t, r.depart(none, d), 2)
	r.endMove(none, d.Batch, true, plainID(1))
	r.endMove(none, d.Batch, false, plainID(2))
	assert.Equal(t, map[string]string{"scheduled " + plainID(2): "now+60s", "messages " + plainID(2): "body " + plainID(2)}, r.state())
}
