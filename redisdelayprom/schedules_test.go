package redisdelayprom

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/observe"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

func TestTicksCountByTopic(t *testing.T) {
	m, registry := newMetrics(t, Config{MaxPlaces: 1})
	o := m.Observer()
	o.Ticked(observe.Ticked{Topic: "t", Schedule: "a", Stored: 2})
	o.Ticked(observe.Ticked{Topic: "t", Schedule: "b", Stored: 3, Missed: 4})
	o.Ticked(observe.Ticked{Topic: "beyond", Schedule: "c", Stored: 1})
	assert.Equal(t, map[string]float64{
		"periodic_ticks_total{topic=t}": 5, "periodic_missed_total{topic=t}": 4,
		"periodic_ticks_total{topic=other}": 1, "periodic_missed_total{topic=other}": 0,
	}, shown(t, registry, "periodic"))
}

func TestACollectorShowsHowManySchedulesAreBehind(t *testing.T) {
	s := onOwnServer(t)
	_, registry := newBacklog(s, CollectorConfig{MaxAge: -1})
	p, err := periodic.New(periodic.Config{Client: s.Client}, nil)
	require.NoError(t, err)
	for _, id := range []string{"a", "b", "c"} {
		require.NoError(t, p.Set(t.Context(), periodic.Schedule{ID: id, Topic: "t", Cron: "@yearly", StoreAtLeast: 2}))
	}
	assert.Equal(t, map[string]float64{"periodic_behind_schedules": 0, "periodic_behind_seconds": 0}, shown(t, registry, "periodic"))
	for id, late := range map[string]time.Duration{"a": 50 * time.Second, "b": 90 * time.Second, "c": time.Hour} {
		require.NoError(t, s.Client.ZAdd(t.Context(), "{redisdelay:periodic}:upcoming",
			redis.Z{Score: float64(s.Now().Add(-late).UnixMilli()), Member: id}).Err())
	}
	got := shown(t, registry, "periodic")
	assert.Equal(t, 2.0, got["periodic_behind_schedules"])
	assert.InDelta(t, 3600, got["periodic_behind_seconds"], 30)
}
