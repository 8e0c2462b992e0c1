package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// arrival is a message that is due in so many seconds.
func (r *scene) arrival(id string, seconds int) Arrival {
	return Arrival{ID: id, DueAt: r.Now().Add(time.Duration(seconds) * time.Second), Body: []byte("body " + id)}
}

// plainID is the n-th id without a key.
func plainID(n int) string { return fmt.Sprintf("%026d", n) }

// arrive stores copies.
func (r *scene) arrive(messages ...Arrival) []Outcome {
	r.T.Helper()
	return r.moveIn("", messages...)
}

// moveIn stores what comes by a move.
func (r *scene) moveIn(move string, messages ...Arrival) []Outcome {
	r.T.Helper()
	outcomes, err := Arrive(r.Ctx(), r.partition, move, messages)
	require.NoError(r.T, err)
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
		"arrived " + plain: "now+86400s", "arrived " + plainID(2): "now+86400s",
	}
	assert.Equal(t, want, r.State())
	again := []Outcome{OutcomeKnown, OutcomeKnown, OutcomeKnown}
	assert.Equal(t, again, r.arrive(arrivals...))
	assert.Equal(t, want, r.State())

	require.Equal(t, []string{id + "#1"}, r.claim(g, "c", 10))
	ack(t, g, id)
	before := r.State()
	assert.Equal(t, again, r.arrive(arrivals...))
	assert.Equal(t, before, r.State())
}

// TestWhatIsKnown is what is there, and what has come before and is done: by the same move, or as a copy.
func TestWhatIsKnown(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	pushed, copied, moved := plainID(1), plainID(2), plainID(3)
	r.push(after(pushed, 60))
	r.arrive(Arrival{ID: copied, Body: []byte("x")})
	r.moveIn("m", Arrival{ID: moved, Body: []byte("x")})
	require.Len(t, r.claim(g, "c", 10), 2)
	ack(t, g, copied, moved)
	topic := newStore(t, r.Client).Topic(r.partition.Topic())
	for move, want := range map[string][]string{"": {pushed, copied}, "m": {pushed, moved}, "other": {pushed}} {
		got, err := Known(t.Context(), topic, 2, move, []string{pushed, copied, moved, plainID(4)})
		require.NoError(t, err)
		assert.ElementsMatch(t, want, slices.Collect(maps.Keys(got)), move)
	}
}

func TestDueTimesArriveToTheMillisecond(t *testing.T) {
	r := newScene(t)
	for n, ms := range []int64{1, 1763800000123, 4102444800999} {
		r.arrive(Arrival{ID: plainID(n), DueAt: time.UnixMilli(ms), Body: []byte("x")})
		score := r.Client.ZScore(t.Context(), r.partition.Key(script.Scheduled, ""), plainID(n)).Val()
		assert.Equal(t, strconv.FormatInt(ms, 10), strconv.FormatFloat(score, 'f', -1, 64))
	}
}

func TestAKeyInUseStaysWithItsHolder(t *testing.T) {
	r := newScene(t)
	holder := keyed(1, "held")
	r.push(after(holder, 60))
	r.pushWindow(1<<41, queue.RejectDuplicates, []queue.Message{after(keyed(2, "window"), 60)})
	require.NoError(t, r.Client.HDel(t.Context(), r.partition.Key(script.Messages, ""), keyed(2, "window")).Err())
	require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.MessageKeys, ""), "free", keyed(3, "free")).Err())
	before := r.State()
	assert.Equal(t, []Outcome{OutcomeTaken, OutcomeTaken}, r.arrive(r.arrival(keyed(5, "held"), 60), r.arrival(keyed(6, "window"), 60)))
	assert.Equal(t, before, r.State())
	assert.Equal(t, []Outcome{OutcomeStored, OutcomeTaken}, r.arrive(r.arrival(keyed(7, "free"), 60), r.arrival(keyed(8, "free"), 60)))
	assert.Equal(t, keyed(7, "free"), r.State()["keys free"], "its holder had no body")
}

// TestAMessageThatIsDoneArrivesOncePerMove: that it has arrived before, by another move or as a
// copy, does not show that this one has brought it.
func TestAMessageThatIsDoneArrivesOncePerMove(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	m := Arrival{ID: plainID(1), Body: []byte("body")}
	finish := func() {
		t.Helper()
		require.Len(t, r.claim(g, "c", 1), 1)
		ack(t, g, m.ID)
	}
	assert.Equal(t, []Outcome{OutcomeStored}, r.arrive(m))
	assert.Equal(t, []Outcome{OutcomeKnown}, r.moveIn("first", m), "it is there")
	finish()
	assert.Equal(t, []Outcome{OutcomeKnown}, r.moveIn("first", m), "it was found there")
	assert.Equal(t, []Outcome{OutcomeStored, OutcomeKnown}, r.moveIn("second", m, m))
	finish()
	assert.Equal(t, []Outcome{OutcomeKnown}, r.moveIn("second", m), "as if the reply was lost")
	assert.Equal(t, []Outcome{OutcomeKnown}, r.arrive(m), "a copy was here")
	assert.Equal(t, map[string]string{
		"groups g": "member", "arrived " + m.ID: "now+86400s", "arrived " + m.ID + "/": "now+86400s",
		"arrived " + m.ID + "/first": "now+86400s", "arrived " + m.ID + "/second": "now+86400s",
	}, r.State())
}

// TestMovesThatMeetLoseNothing: both topics have a message, and it is moved both ways at once. The
// other one counts on the message that this one is about to take out.
func TestMovesThatMeetLoseNothing(t *testing.T) {
	r := newScene(t)
	none, m := r.partition.Group(""), Arrival{ID: plainID(1), Body: []byte("body")}
	r.push(after(m.ID, 60))
	seen, looked := r.seen(r.partition.Key(script.Scheduled, ""), m.ID), r.Now()
	takeOut := func(looked time.Time) []string {
		left, err := TakeOut(t.Context(), none, InScheduled, looked, seen)
		require.NoError(t, err)
		return left
	}
	require.Equal(t, []Outcome{OutcomeKnown}, r.moveIn("other", m))
	before := r.State()
	assert.Equal(t, []string{m.ID}, takeOut(looked))
	assert.Equal(t, before, r.State())
	assert.Empty(t, takeOut(r.Now().Add(time.Second)), "it was seen after the other move had found it")
	assert.Equal(t, map[string]string{"arrived " + m.ID + "/other": "now+86400s"}, r.State())
	assert.Equal(t, []Outcome{OutcomeStored}, r.moveIn("other", m), "it was here, but was moved on")
}

func TestALateArrivalStoresNothing(t *testing.T) {
	r := newScene(t)
	args := []any{r.Now().Add(-time.Second).UnixMilli(), 1000, "wake", "", plainID(1), "", "body"}
	reply, err := r.partition.Run(t.Context(), arriveScript, "", args)
	require.NoError(t, err)
	reply.Time()
	assert.Equal(t, []string{"late"}, reply.Rest())
	assert.Empty(t, r.State())
}

func TestArrivalsAreForgottenInTheEnd(t *testing.T) {
	r := newScene(t)
	key := r.partition.Key(script.Arrived, "")
	var old []redis.Z
	for n := range 2500 {
		old = append(old, redis.Z{Score: 1000, Member: fmt.Sprint(n)})
	}
	require.NoError(t, r.Client.ZAdd(t.Context(), key, old...).Err())
	r.arrive()
	assert.Equal(t, int64(1500), r.Client.ZCard(t.Context(), key).Val())
	assert.Negative(t, r.Client.TTL(t.Context(), key).Val(), "freeing many at once would take long")
	r.arrive()
	r.arrive(Arrival{ID: plainID(1)})
	assert.Equal(t, int64(1), r.Client.ZCard(t.Context(), key).Val())
	assert.InDelta(t, keepArrived.Seconds(), r.Client.TTL(t.Context(), key).Val().Seconds(), 60)
}

func TestArrivalsWakeTheGroups(t *testing.T) {
	r := newScene(t)
	next := r.listen(r.group("g"), "c")
	r.arrive(r.arrival(plainID(1), 60))
	assert.InDelta(t, 60, next().In.Seconds(), 5)
}

func TestWithoutMemoryNothingArrivesAndMessagesCanBeWithdrawn(t *testing.T) {
	server := redistest.New(t, "--maxmemory-policy", "noeviction")
	r := newSceneOn(t, server)
	g, _ := r.group("g"), r.group("h")
	waits := plainID(2)
	r.push(due(waits), after(plainID(1), 60))
	require.Len(t, r.claim(g, "c", 1), 1)
	nack(t, g, queue.Nack{Delivery: queue.Delivery{ID: waits, Token: "1"}, Delay: time.Minute})
	seen := r.seen(r.partition.Key(script.Scheduled, ""), plainID(1))
	inQueue := r.seen(r.partition.Key(script.QueueOf, "g"), waits)
	redistest.Command(t, r.Client, "CONFIG", "SET", "maxmemory", "1")
	before := r.State()
	err := errOf(Arrive(t.Context(), r.partition, "", []Arrival{r.arrival(plainID(3), 60)}))
	require.True(t, redis.HasErrorPrefix(err, "OOM"), "%v", err)
	assert.Equal(t, before, r.State())
	require.Empty(t, r.withdraw(r.partition.Group(""), InScheduled, seen...))
	require.Empty(t, r.withdraw(g, InQueue, inQueue...))
	assert.NotContains(t, r.State(), "messages "+plainID(1))
	assert.NotContains(t, r.State(), "queue:g "+waits)
	assert.Equal(t, `["h"]`, r.State()["refs "+waits])
}
