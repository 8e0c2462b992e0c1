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

// imported is a message that is due in so many seconds.
func (r *scene) imported(id string, seconds int) ImportedMessage {
	return ImportedMessage{ID: id, DueAt: r.Now().Add(time.Duration(seconds) * time.Second), Body: []byte("body " + id)}
}

// plainID is the n-th id without a key.
func plainID(n int) string { return fmt.Sprintf("%026d", n) }

func (r *scene) importMessages(messages ...ImportedMessage) []Outcome {
	r.T.Helper()
	outcomes, err := Import(r.Ctx(), r.partition, messages)
	require.NoError(r.T, err)
	return outcomes
}

func TestAnImportedMessageIsStoredOnceEvenAfterAnAck(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	plain, id := plainID(1), keyed(2, "k")
	messages := []ImportedMessage{r.imported(plain, 60), {ID: id, Body: []byte("body " + id)}, r.imported(plain, 60)}
	assert.Equal(t, []Outcome{OutcomeStored, OutcomeStored, OutcomeKnown}, r.importMessages(messages...))
	want := map[string]string{
		"groups g": "member", "scheduled " + plain: "now+60s", "scheduled " + id: "now+0s", "keys k": id,
		"messages " + plain: "body " + plain, "messages " + id: "body " + id,
		"imported " + plain: "now+86400s", "imported " + plainID(2): "now+86400s",
	}
	assert.Equal(t, want, r.StateFromNow())
	again := []Outcome{OutcomeKnown, OutcomeKnown, OutcomeKnown}
	assert.Equal(t, again, r.importMessages(messages...))
	assert.Equal(t, want, r.StateFromNow())

	require.Equal(t, []string{id + "#1"}, r.claim(g, "c", 10))
	ack(t, g, id)
	before := r.State()
	assert.Equal(t, again, r.importMessages(messages...))
	assert.Equal(t, before, r.State())
}

// TestKnownReturnsPresentAndImportedMessages: imported messages are known even if they are done.
func TestKnownReturnsPresentAndImportedMessages(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	pushed, imported, done := plainID(1), plainID(2), plainID(3)
	r.push(after(pushed, 60), due(done))
	r.importMessages(ImportedMessage{ID: imported, Body: []byte("x")})
	require.Len(t, r.claim(g, "c", 10), 2)
	ack(t, g, imported, done)
	topic := newStore(t, r.Client).Topic(r.partition.Topic())
	got, err := FindImported(t.Context(), topic, 2, []string{pushed, imported, done, plainID(4)})
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{pushed, imported}, slices.Collect(maps.Keys(got)))
}

func TestImportKeepsDueTimesToTheMillisecond(t *testing.T) {
	r := newScene(t)
	for n, ms := range []int64{1, 1763800000123, 4102444800999} {
		r.importMessages(ImportedMessage{ID: plainID(n), DueAt: time.UnixMilli(ms), Body: []byte("x")})
		score := r.Client.ZScore(t.Context(), r.partition.Key(script.Scheduled, ""), plainID(n)).Val()
		assert.Equal(t, strconv.FormatInt(ms, 10), strconv.FormatFloat(score, 'f', -1, 64))
	}
}

// TestALateGroupGetsWhatIsMadeDueInThePast: a message that is imported or rescheduled with a due time in the past is due
// when that happens, so it is for all groups of that time, even if a consumer that gets it first knows only older groups.
func TestALateGroupGetsWhatIsMadeDueInThePast(t *testing.T) {
	past := func(r *scene) int64 { return r.Now().Add(-time.Hour).UnixMilli() }
	for name, makeDue := range map[string]func(r *scene, g *queue.Group, id string) error{
		"import": func(r *scene, _ *queue.Group, _ string) error {
			r.importMessages(ImportedMessage{ID: plainID(3), DueAt: time.UnixMilli(past(r)), Body: []byte("x")})
			return nil
		},
		"reschedule": func(r *scene, _ *queue.Group, id string) error {
			return errOf(newStore(r.T, r.Client).Topic(r.partition.Topic()).RescheduleID(r.Ctx(), id, past(r)))
		},
		"reschedule in bulk": func(r *scene, g *queue.Group, id string) error {
			score := r.Client.ZScore(r.Ctx(), r.partition.Key(script.Scheduled, ""), id).Val()
			return errOf(RescheduleWaiting(r.Ctx(), g, InScheduled, past(r), []Seen{{id, strconv.FormatFloat(score, 'f', -1, 64)}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.group("h")
			r.push(due(plainID(1)), after(plainID(2), 3600))
			require.Len(t, r.claim(g, "c", 10), 1) // it learns the groups
			late := r.group("late")
			require.NoError(t, makeDue(r, g, plainID(2)))
			require.Len(t, r.claim(g, "c", 10), 1)
			assert.Len(t, r.claim(late, "d", 10), 1)
		})
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
	assert.Equal(t, []Outcome{OutcomeTaken, OutcomeTaken}, r.importMessages(r.imported(keyed(5, "held"), 60), r.imported(keyed(6, "window"), 60)))
	assert.Equal(t, before, r.State())
	assert.Equal(t, []Outcome{OutcomeStored, OutcomeTaken}, r.importMessages(r.imported(keyed(7, "free"), 60), r.imported(keyed(8, "free"), 60)))
	assert.Equal(t, keyed(7, "free"), r.State()["keys free"], "its holder had no body")
}

func TestALateImportStoresNothing(t *testing.T) {
	r := newScene(t)
	args := []any{r.Now().Add(-time.Second).UnixMilli(), 1000, "wake", plainID(1), "", "body"}
	reply, err := r.partition.Run(t.Context(), importScript, "", args)
	require.NoError(t, err)
	reply.Time()
	assert.Equal(t, []string{"late"}, reply.Rest())
	assert.Empty(t, r.State())
}

func TestRecordsOfImportsExpire(t *testing.T) {
	r := newScene(t)
	key := r.partition.Key(script.Imported, "")
	var old []redis.Z
	for n := range 2500 {
		old = append(old, redis.Z{Score: 1000, Member: fmt.Sprint(n)})
	}
	require.NoError(t, r.Client.ZAdd(t.Context(), key, old...).Err())
	r.importMessages()
	assert.Equal(t, int64(1500), r.Client.ZCard(t.Context(), key).Val())
	assert.Negative(t, r.Client.TTL(t.Context(), key).Val(), "freeing many at once would take long")
	r.importMessages()
	r.importMessages(ImportedMessage{ID: plainID(1)})
	assert.Equal(t, int64(1), r.Client.ZCard(t.Context(), key).Val())
	assert.InDelta(t, keepImported.Seconds(), r.Client.TTL(t.Context(), key).Val().Seconds(), 60)
}

func TestImportsNotifyTheGroups(t *testing.T) {
	r := newScene(t)
	next := r.listen(r.group("g"), "c")
	r.importMessages(r.imported(plainID(1), 60))
	assert.InDelta(t, 60, next().In.Seconds(), 5)
}

func TestOnlyImportsFailWhenRedisIsFull(t *testing.T) {
	server := redistest.New(t, "--maxmemory-policy", "noeviction")
	r := newSceneOn(t, server)
	r.push(after(plainID(1), 60))
	seen := r.seen(r.partition.Key(script.Scheduled, ""), plainID(1))
	redistest.Command(t, r.Client, "CONFIG", "SET", "maxmemory", "1")
	before := r.State()
	err := errOf(Import(t.Context(), r.partition, []ImportedMessage{r.imported(plainID(3), 60)}))
	require.True(t, redis.HasErrorPrefix(err, "OOM"), "%v", err)
	assert.Equal(t, before, r.State())
	require.Empty(t, r.cancelScheduled(seen...))
	assert.Empty(t, r.State())
}

// TestATornImportIsStoredWhenSentAgain and not twice.
func TestATornImportIsStoredWhenSentAgain(t *testing.T) {
	id := keyed(1, "k")
	var imported ImportedMessage
	arrange := func(r *scene) {
		r.group("g")
		imported = r.imported(id, 0)
		require.Equal(r.T, []Outcome{OutcomeStored}, r.importMessages(imported))
	}
	for _, when := range []string{"before", "after"} {
		tornEverywhere(t, "import, sent again "+when+" the restart,", arrange, func(r *scene) {
			if when == "after" {
				r.Reload()
			}
			r.importMessages(imported)
			r.Reload()
			g := r.partition.Group("g")
			claims, err := g.Claim(r.Ctx(), r.request("c", 10))
			require.NoError(r.T, err)
			require.Empty(r.T, claims.Buried)
			require.Len(r.T, claims.Messages, 1)
			assert.Equal(r.T, "body "+id, string(claims.Messages[0].Body))
			ack(r.T, g, id)
			assert.Equal(r.T, []Outcome{OutcomeKnown}, r.importMessages(imported))
		})
	}
}

// TestARefusedImportLeavesNothing behind if the user loses a right in between.
func TestARefusedImportLeavesNothing(t *testing.T) {
	server := redistest.New(t)
	r := newSceneOn(t, server)
	r.push(after(plainID(9), 60))
	before := r.State()
	_, err := Import(t.Context(), r.through(r.Deny(server, "hset")), []ImportedMessage{r.imported(plainID(1), 60)})
	require.Error(t, err)
	require.False(t, redis.HasErrorPrefix(err, "NOSCRIPT"))
	assert.Equal(t, before, r.State())
	assert.Equal(t, []Outcome{OutcomeStored}, r.importMessages(r.imported(plainID(1), 60)))
}
