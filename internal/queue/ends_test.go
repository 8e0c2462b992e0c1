package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// ends says what happens to each kind of key once all messages of its topic are handled, and no
// process uses the topic any more.
var ends = map[script.Kind]string{
	script.Topics:         lasts, // until an operator deletes the topic
	script.Ticks:          lasts, // as long as its schedules
	script.PartitionCount: lasts,
	script.Groups:         lasts, // until an operator retires the group, or it expires
	script.Settings:       lasts, // set by an operator or a subscriber
	script.Expiries:       lasts, // as long as the group
	script.Scheduled:      empties,
	script.Messages:       empties,
	script.Refs:           empties,
	script.MessageKeys:    empties,
	script.AtLimit:        empties,
	script.QueueOf:        empties,
	script.UnackOf:        empties,
	script.AttemptsOf:     empties,
	script.NackMetadataOf: empties,
	script.DeadOf:         empties, // once an operator has requeued or discarded the dead messages
	script.ReasonsOf:      empties,
	script.ConsumersOf:    empties,
	script.TurnsOf:        empties,
	script.BlockedOf:      empties,
	script.Dedup:          expires,
	script.Publishers:     expires,
	script.ClaimsOf:       expires,
	script.Imported:       expires,
}

const (
	lasts   = "lasts"
	empties = "is gone"
	expires = "expires"
)

// TestKeysAreDeletedOrExpireAfterTheirMessages, except permanent keys, which have no expiry.
func TestKeysAreDeletedOrExpireAfterTheirMessages(t *testing.T) {
	r := newScene(t)
	made := map[script.Kind]bool{}
	r.live(func() {
		for k := range r.kindsOf() {
			made[k] = true
		}
	})
	left := r.kindsOf()
	for _, k := range script.Kinds() {
		if k > script.Topics && k < script.Scheduled { // of packages timetable and intake
			continue
		}
		end, known := ends[k]
		require.True(t, known, "%s: its end is not known", k.Name())
		assert.Equal(t, end == expires || k == script.ConsumersOf, k.Expires(), k.Name())
		assert.True(t, made[k], "%s was never made", k.Name())
		for _, key := range left[k] {
			switch ttl := r.Client.PTTL(t.Context(), key).Val(); end {
			case empties:
				assert.Fail(t, "is left", "%s: %v", key, r.Contents(key))
			case expires:
				assert.Positive(t, ttl, "%s has no end", key)
				assert.LessOrEqual(t, ttl, 25*time.Hour, key)
			case lasts:
				assert.Negative(t, ttl, "%s has an end", key)
			}
		}
	}
}

// live creates keys of all kinds, and calls read while they exist. At the end, all messages have
// ended and no consumer is left.
func (r *scene) live(read func()) {
	r.T.Helper()
	topic := r.topicOf(2)
	g, h := r.expiring("g", time.Hour), r.expiring("h", time.Hour)
	ids := []string{keyed(1, "a"), keyed(2, "b"), keyed(3, "c"), keyed(4, "d")}
	line := []string{ordered("5", "e"), ordered("6", "e")}
	var calls [][]Message
	for _, id := range slices.Concat(ids, line) {
		calls = append(calls, []Message{due(id)})
	}
	require.Empty(r.T, r.pushWindow(1, RejectDuplicates, calls...))
	r.imported(fmt.Sprintf("%026d", 9))
	r.tick(r.revisionOf(0), "", "c")
	take := func(g *Group, limit int) {
		request := r.request("c", limit)
		request.Presence = Presence{Alive: time.Minute, Info: "{}"}
		r.claimWith(g, request)
	}
	take(g, 10)
	take(h, 10)
	read()
	nack(r.T, g, Nack{Delivery: Delivery{ids[0], "1"}, Metadata: []byte("changed")})
	_, err := g.Bury(r.Ctx(), []Burial{{Delivery{ids[1], "1"}, "bad"}})
	require.NoError(r.T, err)
	require.NoError(r.T, topic.Limit(r.Ctx(), "g", Limits{MaxInFlight: 4})) // a half in each partition
	take(g, 10)
	read()
	_, err = Discard(r.Ctx(), g, []string{ids[1]}, ever)
	require.NoError(r.T, err)
	ack(r.T, g, ids[2], ids[3])
	take(g, 1)
	ack(r.T, g, ids[0]+"#2/1/1")
	ack(r.T, h, ids...)
	for _, id := range line {
		for _, one := range []*Group{g, h} {
			ack(r.T, one, id)
			take(one, 10)
		}
	}

	require.NoError(r.T, errOf(r.partition.CancelID(r.Ctx(), fmt.Sprintf("%026d", 9))))
	for _, left := range []*Group{g, h} {
		require.NoError(r.T, left.Leave(r.Ctx(), "c"))
	}
}

// kindsOf lists the keys of the topic and of the list of topics by their kind.
func (r *scene) kindsOf() map[script.Kind][]string {
	r.T.Helper()
	list := map[script.Kind][]string{}
	registry := r.partition.Client().Registry()
	if r.Client.Exists(r.Ctx(), registry).Val() == 1 {
		list[script.Topics] = []string{registry}
	}
	for _, key := range r.Keys() {
		_, rest, _ := strings.Cut(key, "}:")
		name, _, _ := strings.Cut(rest, ":")
		found := false
		for _, k := range script.Kinds() {
			if k.Name() == name {
				list[k], found = append(list[k], key), true
			}
		}
		require.True(r.T, found, key)
	}
	return list
}

// TestTheDedupKeyExpiresWithItsLastWindow, whatever the order of the windows is. No window ends early.
func TestTheDedupKeyExpiresWithItsLastWindow(t *testing.T) {
	r := newScene(t)
	key := r.partition.Key(script.Dedup, "")
	ttl := func() float64 { return r.Client.PTTL(t.Context(), key).Val().Seconds() }
	for n, step := range []struct {
		window time.Duration
		want   time.Duration
	}{{time.Minute, time.Minute}, {time.Hour, time.Hour}, {time.Second, time.Hour}} {
		require.NoError(t, errOf(r.pushFor(step.window, int64(n+1), RejectDuplicates, []Message{due(keyed(n, fmt.Sprint(n)))})))
		assert.InDelta(t, step.want.Seconds(), ttl(), 10)
	}

	require.NoError(t, r.Client.Persist(t.Context(), key).Err())
	require.NoError(t, errOf(r.pushFor(time.Second, 4, RejectDuplicates, []Message{due(keyed(4, "4"))})))
	assert.InDelta(t, time.Hour.Seconds(), ttl(), 10, "one that an older library has left")

	ahead := r.Now().Add(10 * time.Hour)
	require.NoError(t, r.Client.ZAdd(t.Context(), key, redis.Z{Score: float64(ahead.UnixMilli()), Member: "x"}).Err())
	require.NoError(t, errOf(r.pushFor(time.Second, 5, RejectDuplicates, []Message{due(keyed(5, "5"))})))
	assert.InDelta(t, (10 * time.Hour).Seconds(), ttl(), 10, "one that was set before the clock was set back")
}

// TestTheConsumersKeyLastsAsLongAsTheConsumer because a busy consumer with a long lease may not call for days.
func TestTheConsumersKeyLastsAsLongAsTheConsumer(t *testing.T) {
	const day = 24 * time.Hour
	r := newScene(t)
	g := r.group("g")
	key := r.partition.Key(script.ConsumersOf, "g")
	for _, step := range []struct{ alive, want time.Duration }{{5 * day, 5 * day}, {time.Minute, day}, {5 * day, 5 * day}} {
		require.Eventually(t, func() bool { // a claim that finds nothing records the consumer once a second
			request := r.request("c", 1)
			request.Presence = Presence{Alive: step.alive, Info: "{}"}
			require.Empty(t, r.claimWith(g, request))
			left := r.Client.PTTL(t.Context(), key).Val()
			return left > step.want-time.Hour && left <= step.want
		}, time.Minute, 50*time.Millisecond, step)
	}
	r.alive(g, "c", 6*day)
	assert.Greater(t, r.Client.PTTL(t.Context(), key).Val(), 5*day)
}

const manyEntries = 50_000

// crowd fills the keys that have records with entries that are no longer needed.
func (r *scene) crowd(group string) (large []string) {
	r.T.Helper()
	const hashes = "for i = ARGV[1], ARGV[1] + 9999 do redis.call('HSET', KEYS[1], 'old ' .. i, '1 ' .. 1000 + i .. ' result') end return 1"
	const zsets = "for i = ARGV[1], ARGV[1] + 9999 do redis.call('ZADD', KEYS[1], 1000 + i, 'old ' .. i) end return 1"
	for k, fill := range map[script.Kind]string{script.Publishers: hashes, script.ClaimsOf: hashes, script.Dedup: zsets, script.Imported: zsets} {
		key := r.partition.Key(k, group)
		for from := 1; from < manyEntries; from += 10_000 {
			require.NoError(r.T, r.Client.Eval(r.Ctx(), fill, []string{key}, from).Err())
		}
		large = append(large, key)
	}
	return large
}

// use creates a needed entry of each kind.
func (r *scene) use(g *Group) {
	r.T.Helper()
	require.Empty(r.T, r.pushWindow(1, RejectDuplicates, []Message{due(keyed(1, "k"))}))
	r.imported(fmt.Sprintf("%026d", 9))
	r.claim(g, "c", 1)
}

// TestLargeKeysAreDeletedInSmallSteps because Redis would free a large key at once when it expires.
func TestLargeKeysAreDeletedInSmallSteps(t *testing.T) {
	r := newSceneOn(t, redistest.New(t, "--save", ""))
	topic := r.topicOf(1)
	g := r.group("g")
	large := r.crowd(g.name)
	for _, key := range large { // an expiry, as a key has before it grows large
		require.NoError(t, r.Client.PExpire(t.Context(), key, time.Hour).Err())
	}
	r.use(g)
	for _, key := range large {
		assert.Negative(t, r.Client.PTTL(t.Context(), key).Val(), "%s expires at once", key)
	}
	_, err := topic.Partitions(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		topic.search.next = time.Now().Add(-time.Second)
		_, err := topic.endExpired(t.Context(), g.name)
		require.NoError(t, err)
		small := 0
		for _, key := range large {
			if r.size(key) <= 1000 {
				small++
			}
		}
		return small == len(large)
	}, time.Minute, time.Millisecond)
	for _, key := range large {
		ttl := r.Client.PTTL(t.Context(), key).Val()
		assert.Positive(t, ttl, "%s has no end", key)
		assert.LessOrEqual(t, ttl, 25*time.Hour, key)
	}
	for key, field := range map[string]string{r.partition.Key(script.Publishers, ""): "p", r.partition.Key(script.ClaimsOf, g.name): "c"} {
		assert.True(t, r.Client.HExists(t.Context(), key, field).Val(), "the record of %s", field)
	}
	for key, member := range map[string]string{r.partition.Key(script.Dedup, ""): "k", r.partition.Key(script.Imported, ""): fmt.Sprintf("%026d", 9)} {
		require.NoError(t, r.Client.ZScore(t.Context(), key, member).Err(), member)
	}
}

// size returns how many entries a key has.
func (r *scene) size(key string) int64 {
	r.T.Helper()
	sizes, err := r.Client.Pipelined(r.Ctx(), func(p redis.Pipeliner) error {
		p.HLen(r.Ctx(), key)
		return nil
	})
	if err != nil { // a zset
		return r.Client.ZCard(r.Ctx(), key).Val()
	}
	return sizes[0].(*redis.IntCmd).Val()
}
