package redisdelayprom

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// sceneWith is a scene on a server, with a client of its own, whose calls of scripts are counted.
func sceneWith(t *testing.T, server *redistest.Server, options redis.Options) (*fixture.Scene, *counting) {
	t.Helper()
	options.Addr = server.Addr
	client := redis.NewClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	calls := &counting{}
	client.AddHook(calls)
	return fixture.NewWith(t, client), calls
}

// scrapes makes several scrapes at once, and returns what they have shown of Redis.
func scrapes(t *testing.T, registry *prometheus.Registry) <-chan []map[string]float64 {
	t.Helper()
	const several = 8
	all := make(chan []map[string]float64, 1)
	var begun, running sync.WaitGroup
	begun.Add(several)
	list := make([]map[string]float64, several)
	for i := range list {
		running.Go(func() {
			begun.Done()
			list[i] = shown(t, registry, "redis_up")
		})
	}
	begun.Wait()
	go func() { // ends with the scrapes
		running.Wait()
		all <- list
	}()
	return all
}

func TestAScrapeEndsInTimeThoughRedisHangs(t *testing.T) {
	for name, options := range map[string]redis.Options{"default options": {}, "no timeout": {ReadTimeout: -1}} {
		t.Run(name, func(t *testing.T) {
			server := redistest.New(t)
			s, calls := sceneWith(t, server, options)
			b, registry := newBacklog(s, CollectorConfig{MaxAge: -1, Timeout: time.Second})
			s.Publish("a")
			require.Equal(t, 1.0, shown(t, registry, "redis_up")["redis_up"])
			before := calls.calls.Load()
			require.NoError(t, server.Signal(syscall.SIGSTOP))
			resume := sync.OnceValue(func() error { return server.Signal(syscall.SIGCONT) })
			defer func() { _ = resume() }()
			for range 2 {
				select {
				case list := <-scrapes(t, registry):
					for _, got := range list {
						assert.Equal(t, map[string]float64{"redis_up": 0}, got)
					}
				case <-time.After(fixture.Soon):
					require.Fail(t, "the scrapes have not ended")
				}
				fixture.Wait(t, b.last.done, "what reads ends with its timeout") // else the next round shares it
			}
			assert.LessOrEqual(t, calls.calls.Load(), before+2*4, "the scrapes of a round share a reading, which makes up to four calls")
			assert.Equal(t, map[string]float64{"redis_scrape_errors_total": 3}, shown(t, registry, "errors"), "this one fails, too")
			require.NoError(t, resume())
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				got := shown(t, registry, "")
				assert.Equal(c, []float64{1, 1}, []float64{got["redis_up"], got[fmt.Sprintf("topic_due_messages{topic=%s}", s.Topic)]})
			}, fixture.Soon, 10*time.Millisecond)
		})
	}
}

func TestSeveralFirstScrapesReadRedisOnce(t *testing.T) {
	s, calls := sceneWith(t, redistest.New(t), redis.Options{})
	_, registry := newBacklog(s, CollectorConfig{MaxAge: time.Minute})
	s.Publish("a")
	_, other := newBacklog(s, CollectorConfig{MaxAge: time.Minute})
	shown(t, other, "")
	before := calls.calls.Load()
	shown(t, registry, "")
	once := calls.calls.Load() - before

	_, registry = newBacklog(s, CollectorConfig{MaxAge: time.Minute})
	before = calls.calls.Load()
	open := calls.close()
	all := scrapes(t, registry)
	open()
	<-all
	assert.Equal(t, once, calls.calls.Load()-before)
}

func TestAFailedReadingIsShownAgainForAWhile(t *testing.T) {
	server := redistest.New(t)
	s, _ := sceneWith(t, server, redis.Options{MaxRetries: -1})
	b, registry := newBacklog(s, CollectorConfig{MaxAge: time.Minute})
	now := time.Unix(1000, 0)
	b.now = func() time.Time { return now }
	require.NoError(t, server.Down())
	up := func() []float64 {
		got := shown(t, registry, "")
		return []float64{got["redis_up"], got["redis_scrape_errors_total"]}
	}
	assert.Equal(t, []float64{0, 1}, up())
	server.Up()
	require.NoError(t, server.Wait())
	now = now.Add(time.Minute - 1)
	assert.Equal(t, []float64{0, 1}, up())
	now = now.Add(1)
	assert.Equal(t, []float64{1, 1}, up())
}

func TestAScrapeShowsWhatAMasterHasWhileAnotherHangs(t *testing.T) {
	cluster := redistest.NewCluster(t)
	s := fixture.NewWith(t, cluster.Client(t))
	b, registry := newBacklog(s, CollectorConfig{MaxAge: -1, Timeout: time.Second})
	masterOf := func(key string) *redistest.Server {
		slot, err := s.Client.ClusterKeySlot(t.Context(), key).Result()
		require.NoError(t, err)
		master, err := cluster.Master(t.Context(), int(slot))
		require.NoError(t, err)
		return master
	}
	topics := map[bool]string{} // by whether the master is that with the list of topics
	for i := 0; len(topics) < 2; i++ {
		beside := s.Beside(fmt.Sprint(i))
		topics[masterOf(beside.Key("scheduled")) == masterOf("{redisdelay:topics}")] = beside.Topic
	}
	away := masterOf("{redisdelay:" + topics[false] + ":0}")
	for _, topic := range topics {
		require.NoError(t, s.Publisher().Publish(topic, fixture.Delayed("a", time.Hour)))
	}
	slot, err := s.Client.ClusterKeySlot(t.Context(), "{redisdelay:"+topics[false]+":0}").Result()
	require.NoError(t, err)
	replicas, err := cluster.Replicas(t.Context(), int(slot))
	require.NoError(t, err)
	for _, server := range append(replicas, away) { // nobody takes over
		require.NoError(t, server.Signal(syscall.SIGSTOP))
		defer func() { _ = server.Signal(syscall.SIGCONT) }()
	}
	var got map[string]float64
	var took time.Duration
	for range 3 { // a reading may end too late if this process stands still
		got = shown(t, registry, "scheduled")
		fixture.Wait(t, b.last.done, "the reading ends") // else the next scrape shares it
		if took = b.last.end.Sub(b.last.start); len(got) > 0 && took < b.config.Timeout {
			break
		}
	}
	assert.Less(t, took, b.config.Timeout, "a scrape may give up before the reading ends")
	assert.Equal(t, map[string]float64{"topic_scheduled_messages{topic=" + topics[true] + "}": 1}, got)
}

// counting counts calls of scripts, and makes all calls wait while it is closed.
type counting struct {
	redistest.Hook
	calls atomic.Int64
	gate  sync.RWMutex
}

// close makes calls wait for open.
func (c *counting) close() (open func()) {
	c.gate.Lock()
	return c.gate.Unlock
}

// pass counts a call of a script, and waits while the gate is closed. A new connection's HELLO and
// CLIENT come by, too, and are not counted: how many connections there are depends on timing.
func (c *counting) pass(command string) {
	if strings.HasPrefix(command, "eval") {
		c.calls.Add(1)
	}
	c.gate.RLock()
	defer c.gate.RUnlock()
}

func (c *counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.pass(cmd.Name())
		return next(ctx, cmd)
	}
}
