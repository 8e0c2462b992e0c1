package redisdelayprom

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

var bound = flag.Bool("bound", false, "TestAScrapeOfAThousandTopics fails if a scrape takes longer than it may; for a machine that is idle")

const (
	manyTopics = 1000
	scrapeMost = 200 * time.Millisecond
	scriptMost = 10 * time.Millisecond
)

// TestAScrapeOfAThousandTopics with three groups each measures how long it takes, and its
// slowest script in Redis.
func TestAScrapeOfAThousandTopics(t *testing.T) {
	s := fixture.NewOn(t, redistest.New(t))
	fill(s)
	ctx := t.Context()
	require.NoError(t, s.Client.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err())
	require.NoError(t, s.Client.ConfigSet(ctx, "slowlog-max-len", "100000").Err())
	_, registry := newBacklog(s, CollectorConfig{MaxAge: -1, MaxPlaces: 3 * manyTopics})
	fastest, slowest := time.Hour, time.Hour // of the best round: others may be interrupted
	rounds := 1
	if *bound {
		rounds = 5
	}
	for range rounds {
		require.NoError(t, s.Client.Do(ctx, "SLOWLOG", "RESET").Err())
		got := shown(t, registry, "")
		require.Equal(t, 1.0, got["redis_up"])
		require.Equal(t, 1.0, got["group_consumers{group=g2,topic=t999}"])
		require.Equal(t, 1.0, got["topic_scheduled_messages{topic=t999}"])
		fastest = min(fastest, time.Duration(got["redis_scrape_duration_seconds"]*float64(time.Second)))
		calls, err := s.Client.SlowLogGet(ctx, -1).Result()
		require.NoError(t, err)
		longest := time.Duration(0)
		for _, c := range calls {
			if strings.HasPrefix(c.Args[0], "eval") { // SLOWLOG RESET takes long
				longest = max(longest, c.Duration)
			}
		}
		slowest = min(slowest, longest)
	}
	t.Logf("scrape %v, slowest script %v", fastest, slowest)
	if *bound {
		assert.Less(t, fastest, scrapeMost)
		assert.Less(t, slowest, scriptMost)
	}
}

// fill makes many topics, as their keys are after some use.
func fill(s *fixture.Scene) {
	s.T.Helper()
	due := float64(time.Now().Add(time.Hour).UnixMilli())
	_, err := s.Client.Pipelined(s.T.Context(), func(pipe redis.Pipeliner) error {
		ctx := s.T.Context()
		for i := range manyTopics {
			topic := fmt.Sprint("t", i)
			key := func(kind string) string { return fmt.Sprintf("{redisdelay:%s:0}:%s", topic, kind) }
			pipe.HSet(ctx, "{redisdelay:topics}", topic, "1")
			pipe.ZAdd(ctx, key("scheduled"), redis.Z{Score: due, Member: "id"})
			for _, group := range []string{"g0", "g1", "g2"} {
				pipe.SAdd(ctx, key("groups"), group)
				pipe.ZAdd(ctx, key("queue:"+group), redis.Z{Score: 1, Member: "id 1"})
				pipe.ZAdd(ctx, key("unack:"+group), redis.Z{Score: due, Member: "id 2"})
				pipe.HSet(ctx, key("consumers:"+group), "c/1", fmt.Sprintf(`%.0f 5 5 {"name":"c","pid":1}`, due))
			}
		}
		return nil
	})
	require.NoError(s.T, err)
}
