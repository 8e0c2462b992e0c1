package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

const manyEntries = 200_000

// crowd fills what remembers calls and keys with entries that nobody needs any more.
func (r *scene) crowd(group string) (large []string) {
	r.T.Helper()
	const hashes = "for i = ARGV[1], ARGV[1] + 9999 do redis.call('HSET', KEYS[1], 'old ' .. i, '1 ' .. 1000 + i .. ' result') end return 1"
	const zsets = "for i = ARGV[1], ARGV[1] + 9999 do redis.call('ZADD', KEYS[1], 1000 + i, 'old ' .. i) end return 1"
	for k, fill := range map[script.Kind]string{script.Publishers: hashes, script.ClaimsOf: hashes, script.Taken: zsets, script.Arrived: zsets} {
		key := r.partition.Key(k, group)
		for from := 1; from < manyEntries; from += 10_000 {
			require.NoError(r.T, r.Client.Eval(r.Ctx(), fill, []string{key}, from).Err())
		}
		large = append(large, key)
	}
	return large
}

// use makes an entry of each kind that is needed.
func (r *scene) use(g *Group) {
	r.T.Helper()
	require.Empty(r.T, r.pushWindow(1, RejectDuplicates, []Message{due(keyed(1, "k"))}))
	r.arrived(fmt.Sprintf("%026d", 9))
	r.claim(g, "c", 1)
}

// TestWhatIsLargeEndsInPieces: Redis would free all of it at once when it expires.
func TestWhatIsLargeEndsInPieces(t *testing.T) {
	r := newSceneOn(t, redistest.New(t, "--save", ""))
	topic := r.topicOf(1)
	g := r.group("g")
	large := r.crowd(g.name)
	for _, key := range large { // as an older library has left it
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
	for key, member := range map[string]string{r.partition.Key(script.Taken, ""): "k", r.partition.Key(script.Arrived, ""): fmt.Sprintf("%026d", 9)} {
		require.NoError(t, r.Client.ZScore(t.Context(), key, member).Err(), member)
	}
}

// size is how many entries a key has.
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
