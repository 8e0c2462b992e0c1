package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

var full = flag.Bool("full", false, "run the full form of each case")

// size is the short or the full form of a case.
func size(short, long int) int {
	if *full {
		return long
	}
	return short
}

// quiet is how long a case waits for the backlog to drain before what is left
// counts as stuck.
const quiet = 60 * time.Second

// scene is one case: a topic, a server and the history.
type scene struct {
	t       *testing.T
	addr    string // of a single server
	server  *redistest.Server
	connect func() redis.UniversalClient
	client  redis.UniversalClient // for looking on; it meets no fault of the network
	topic   string
	history *History
}

func newScene(t *testing.T, options ...string) *scene {
	t.Helper()
	server := redistest.New(t, options...)
	s := newSceneAt(t, server.Addr)
	s.server = server
	return s
}

func newSceneAt(t *testing.T, addr string) *scene {
	t.Helper()
	s := newSceneOn(t, func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: addr}) })
	s.addr = addr
	return s
}

func newSceneOn(t *testing.T, connect func() redis.UniversalClient) *scene {
	t.Helper()
	s := &scene{
		t: t, connect: connect, history: &History{},
		topic: fmt.Sprintf("%s-%d", strings.NewReplacer("/", "-", ":", "-").Replace(t.Name()), rand.Uint32()),
	}
	s.client = s.dial()
	return s
}

// dial returns a client with go-redis's default options, as users have.
func (s *scene) dial() redis.UniversalClient {
	client := s.connect()
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// job is a worker's job on this scene.
func (s *scene) job(change func(*job)) job {
	j := job{Addr: s.addr, Topic: s.topic, Group: "g", Lease: time.Second, MaxInFlight: 1}
	change(&j)
	return j
}

// inProcess runs a job in this process until the test or the returned function ends
// it.
func (s *scene) inProcess(j job, client redis.UniversalClient) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- j.run(ctx, client, s.history.Add) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			s.t.Log("worker:", err)
		}
	}
	s.t.Cleanup(stop)
	return stop
}

// key is the name of a key of the first partition.
func (s *scene) key(kind string) string { return "{redisdelay:" + s.topic + ":0}:" + kind }

// keys lists the keys that the topic has in Redis, on all masters and in all
// partitions.
func (s *scene) keys(ctx context.Context) (names []string, err error) {
	var mu sync.Mutex
	list := func(ctx context.Context, client *redis.Client) error {
		some, err := client.Keys(ctx, "{redisdelay:"+s.topic+":*").Result()
		mu.Lock()
		defer mu.Unlock()
		names = append(names, some...)
		return err
	}
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, list)
	case *redis.Client:
		err = list(ctx, c)
	}
	return names, err
}

// kindOf tells a key's kind from its name: "messages", or "unack" of some group.
func kindOf(key string) string {
	_, kind, _ := strings.Cut(key, "}:")
	kind, _, _ = strings.Cut(kind, ":")
	return kind
}

// bodies returns the UUIDs of the messages that Redis still has.
func (s *scene) bodies() []string {
	s.t.Helper()
	keys, err := s.keys(context.Background())
	require.NoError(s.t, err)
	var uuids []string
	for _, key := range keys {
		if kindOf(key) != "messages" {
			continue
		}
		bodies, err := s.client.HVals(context.Background(), key).Result()
		require.NoError(s.t, err)
		for _, body := range bodies {
			msg, err := redisdelay.DefaultMarshaler{}.Unmarshal(s.topic, []byte(body))
			if err != nil {
				uuids = append(uuids, fmt.Sprintf("garbage %q", body))
				continue
			}
			uuids = append(uuids, msg.UUID)
		}
	}
	return uuids
}

// until waits for a condition.
func (s *scene) until(what string, within time.Duration, met func() bool) {
	s.t.Helper()
	require.Eventually(s.t, met, within, 20*time.Millisecond, what)
}

// drained waits until Redis has no message any more, quiet at most.
func (s *scene) drained() {
	s.t.Helper()
	deadline := time.Now().Add(quiet)
	for time.Now().Before(deadline) {
		keys, err := s.keys(context.Background())
		if err == nil && !slices.ContainsFunc(keys, func(key string) bool { return kindOf(key) == "messages" }) {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

// judge fails the case unless the checker finds nothing, and no half message is
// left in Redis.
func (s *scene) judge(groups ...string) Report {
	s.t.Helper()
	report := s.history.Check(groups, s.bodies(), nil)
	s.t.Log(report)
	if len(report.Stuck) > 0 {
		s.t.Log("in Redis:", s.sizes())
	}
	require.Empty(s.t, report.Failures())
	require.NotZero(s.t, report.Deliveries)
	s.consistent()
	return report
}

// sizes tells how much is in each key of the topic.
func (s *scene) sizes() map[string]int64 {
	s.t.Helper()
	ctx := context.Background()
	keys, err := s.keys(ctx)
	require.NoError(s.t, err)
	sizes := map[string]int64{}
	for _, key := range keys {
		sizes[strings.TrimPrefix(key, "{redisdelay:"+s.topic)] = max(s.client.ZCard(ctx, key).Val(), s.client.HLen(ctx, key).Val())
	}
	return sizes
}

// consistent asserts that every id in a set has a body and every body is in a set.
func (s *scene) consistent() {
	s.t.Helper()
	ctx := context.Background()
	keys, err := s.keys(ctx)
	require.NoError(s.t, err)
	inSets, bodies := map[string]bool{}, map[string]bool{}
	for _, key := range keys {
		switch kindOf(key) {
		case "scheduled", "queue", "unack", "dead":
			for _, id := range s.client.ZRange(ctx, key, 0, -1).Val() {
				inSets[id] = true
			}
		case "messages":
			for _, id := range s.client.HKeys(ctx, key).Val() {
				bodies[id] = true
			}
		}
	}
	assert.Equal(s.t, bodies, inSets, "ids with bodies, and ids in sets")
}
