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

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

var bound = flag.Bool("bound", false, "TestAScrapeOfAThousandTopics has so many, and fails if a scrape takes longer than it may; for a machine that is idle")

// TestAScrapeOfAThousandTopics with three groups each measures how long it takes, and its slowest script in Redis.
func TestAScrapeOfAThousandTopics(t *testing.T) {
	s, _ := sceneOn(t, redistest.New(t), redis.Options{})
	topics, rounds := 100, 1
	if *bound {
		topics, rounds = 1000, 5
	}
	ctx, due := t.Context(), float64(time.Now().Add(time.Hour).UnixMilli())
	_, err := s.Client.Pipelined(ctx, func(pipe redis.Pipeliner) error { // their keys as after some use
		for i := range topics {
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
	require.NoError(t, err)
	require.NoError(t, s.Client.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err())
	require.NoError(t, s.Client.ConfigSet(ctx, "slowlog-max-len", "100000").Err())
	c, registry := newCollector(s, CollectorConfig{MaxAge: -1, MaxPlaces: 3000})
	fastest, slowest := time.Hour, time.Hour // of the best round: others may be interrupted
	for range rounds {
		require.NoError(t, s.Client.Do(ctx, "SLOWLOG", "RESET").Err())
		got := shown(t, registry, "")
		require.Equal(t, []float64{1, 1, 1}, []float64{
			got["redis_up"], got["group_consumers{group=g2,topic=t99}"], got["topic_scheduled_messages{topic=t99}"],
		})
		fastest = min(fastest, c.last.took)
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
		assert.Less(t, fastest, 200*time.Millisecond)
		assert.Less(t, slowest, 10*time.Millisecond)
	}
}
