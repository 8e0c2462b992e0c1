package redisdelayprom

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/promtest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// quickAlerts is docs/operate/alerts.yml with a second for each minute and each hour: what takes five minutes takes five seconds.
func quickAlerts(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "alerts.yml")
	text = regexp.MustCompile(`\b(\d+)[mh]\b`).ReplaceAll(text, []byte("${1}s"))
	text = regexp.MustCompile(`(overdue_seconds\)*) > 60\b`).ReplaceAll(text, []byte("$1 > 1"))
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}

// firing are the alerts that fire.
func (p *prometheusServer) firing(c require.TestingT) []string {
	answer, err := p.Query(p.t.Context(), `count by (alertname) (ALERTS{alertstate="firing"})`)
	require.NoError(c, err)
	list := []string{}
	for _, series := range answer {
		list = append(list, series.Labels["alertname"])
	}
	return list
}

// troubled puts into Redis what the alerts about it look for, and tells an observer of what the others look for.
func troubled(s *fixture.Scene, o observe.Observer) {
	t := s.T
	require.NoError(t, s.Publisher().Publish(s.Topic, message.NewMessage("no group", nil)))
	late := s.Beside("late")
	require.NoError(t, late.Subscriber().SubscribeInitialize(late.Topic))
	late.Publish("nobody handles it")
	paused := s.Beside("paused")
	require.NoError(t, paused.Subscriber().SubscribeInitialize(paused.Topic))
	control, err := redisdelay.NewControl(redisdelay.ControlConfig{Client: s.Client})
	require.NoError(t, err)
	require.NoError(t, control.Pause(t.Context(), paused.Topic, redisdelay.AllGroups, redisdelay.Pause{}))
	at := observe.Place{Topic: s.Topic, Group: "g"}
	o.HandedOut(observe.HandedOut{Place: at, Late: -time.Millisecond})
	o.OutageBegan(observe.OutageBegan{Place: at, What: observe.Listening})
}

// TestAlertsWhileRedisHangs lets Redis stop for longer than any alert waits, with a Prometheus that waits for less time
// than the Collector does: some scrapes fail, and others show at once that Redis is away.
func TestAlertsWhileRedisHangs(t *testing.T) {
	t.Parallel()
	const interval = promInterval / 2 // so that a slow machine may miss some scrapes within the shortest range of an alert
	server := redistest.New(t)
	s, _ := sceneWith(t, server, redis.Options{ContextTimeoutEnabled: true}) // a reading ends in time
	_, registry := newBacklog(s, CollectorConfig{MaxAge: 300 * time.Millisecond, Timeout: 650 * time.Millisecond})
	m, err := New(Config{})
	require.NoError(t, err)
	require.NoError(t, registry.Register(m))
	p := startPrometheus(t, promtest.Config{Interval: interval, Rules: quickAlerts(t)})
	p.scrape("only", serve(t, registry))
	fires := func(when string, names ...string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			assert.ElementsMatch(c, names, p.firing(c), when)
		}, time.Minute, 100*time.Millisecond)
	}
	ofRedis := []string{"RedisdelayNoGroup", "RedisdelayOverdue", "RedisdelayNoConsumers", "RedisdelayPausedLong"}
	ofProcess := []string{"RedisdelayEarly", "RedisdelayPollOnly"}
	troubled(s, m.Observer())
	fires("before", slices.Concat(ofRedis, ofProcess)...)

	require.NoError(t, server.Signal(syscall.SIGSTOP))
	resume := sync.OnceValue(func() error { return server.Signal(syscall.SIGCONT) })
	defer func() { _ = resume() }()
	fires("while Redis hangs", append(ofProcess, "RedisdelayUnwatched")...)
	scraped := p.query(t, "avg_over_time(up[5s])")["only"]
	assert.True(t, 0 < scraped && scraped < 1, "some scrapes fail and some do not: %v", scraped)
	for range 5 * time.Second / interval { // none of them ends in between
		<-time.After(interval)
		assert.Subset(t, p.firing(t), append(ofProcess, "RedisdelayUnwatched"))
	}

	require.NoError(t, resume())
	fires("after", slices.Concat(ofRedis, ofProcess)...)
}
