package chaos

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

var full = flag.Bool("full", false, "run the full form of each case")

// size returns the size of the short or the full form of a case.
func size(short, long int) int {
	if *full {
		return long
	}
	return short
}

// onlyInFull skips a case whose short form finds nothing that the simulation, the explorer or other tests do not find.
func onlyInFull(t *testing.T) {
	t.Helper()
	if !*full {
		t.Skip("only with -full: make chaos failover")
	}
}

// beside runs the short form of a case in parallel with others. The full form has the machine for itself, and so has a
// case that the race detector slows down.
func beside(t *testing.T) {
	t.Helper()
	if !*full && !fixture.RaceDetector {
		t.Parallel()
	}
}

// quiet is how long a case waits for progress. Messages that are left then count as stuck.
const quiet = time.Minute

// scene is one case: a topic, the servers and the history.
type scene struct {
	*fixture.Scene          // its client only observes, and meets no network faults
	addr           string   // of a single server
	cluster        []string // addresses of a cluster, for processes
	server         *redistest.Server
	connect        func() redis.UniversalClient
	history        *History
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
	client := connect()
	t.Cleanup(func() { _ = client.Close() })
	return &scene{Scene: fixture.NewWith(t, client), connect: connect, history: &History{}}
}

// dial returns a client with go-redis's default options, as users have.
func (s *scene) dial() redis.UniversalClient {
	client := s.connect()
	s.T.Cleanup(func() { _ = client.Close() })
	return client
}

// job is a worker's job on this scene.
func (s *scene) job(change func(*job)) job {
	j := job{Addr: s.addr, Cluster: s.cluster, Topic: s.Topic, Group: "g", Lease: time.Second, MaxInFlight: 1}
	change(&j)
	return j
}

// inProcess runs a job in this process until the test ends or the returned function is called.
func (s *scene) inProcess(j job, client redis.UniversalClient) (stop func()) {
	s.T.Helper()
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
			s.T.Log("worker:", err)
		}
	}
	s.T.Cleanup(stop)
	return stop
}

// kindOf returns a key's kind from its name: "messages", or "unack" of any group.
func kindOf(key string) string {
	kind, _, _ := strings.Cut(fixture.Kind(key), ":")
	return kind
}

// bodies returns the UUIDs of the messages in Redis.
func (s *scene) bodies() []string {
	s.T.Helper()
	keys, err := s.Keys(context.Background())
	require.NoError(s.T, err)
	var uuids []string
	for _, key := range keys {
		if kindOf(key) != "messages" {
			continue
		}
		bodies, err := s.Client.HVals(context.Background(), key).Result()
		require.NoError(s.T, err)
		for _, body := range bodies {
			msg, err := redisdelay.DefaultMarshaler{}.Unmarshal(s.Topic, []byte(body))
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
	s.T.Helper()
	require.Eventually(s.T, met, within, 20*time.Millisecond, what)
}

// drained waits until Redis has no messages, or no message was handled or acked for the time quiet.
func (s *scene) drained() {
	s.T.Helper()
	done, deadline := 0, time.Now().Add(quiet)
	for time.Now().Before(deadline) {
		keys, err := s.Keys(context.Background())
		if err == nil && !slices.ContainsFunc(keys, func(key string) bool { return kindOf(key) == "messages" }) {
			return
		}
		if now := s.history.Count(Handled) + s.history.Count(Acked); now > done { // a slow machine needs more time
			done, deadline = now, time.Now().Add(quiet)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// judge is judgeDeliveries for workers that ack and report it.
func (s *scene) judge(groups ...string) Report {
	s.T.Helper()
	require.NotZero(s.T, s.history.Count(Acked), "no worker tells of acks that Redis has accepted")
	return s.judgeDeliveries(groups...)
}

// judgeDeliveries fails the case if the checker finds a violation, or Redis has inconsistent data.
func (s *scene) judgeDeliveries(groups ...string) Report {
	s.T.Helper()
	report := s.history.Check(groups, s.bodies(), nil)
	s.T.Log(report)
	if len(report.Stuck) > 0 {
		s.T.Log("in Redis:", s.sizes())
	}
	require.Empty(s.T, report.Failures())
	require.NotZero(s.T, report.Deliveries)
	s.consistent()
	return report
}

// sizes returns the size of each key of the topic.
func (s *scene) sizes() map[string]int64 {
	s.T.Helper()
	ctx := context.Background()
	keys, err := s.Keys(ctx)
	require.NoError(s.T, err)
	sizes := map[string]int64{}
	for _, key := range keys {
		sizes[strings.TrimPrefix(key, s.Tag())] = max(s.Client.ZCard(ctx, key).Val(), s.Client.HLen(ctx, key).Val())
	}
	return sizes
}

// consistent asserts that every id in a set has a body and every body is in a set.
func (s *scene) consistent() {
	s.T.Helper()
	ctx := context.Background()
	keys, err := s.Keys(ctx)
	require.NoError(s.T, err)
	inSets, bodies := map[string]bool{}, map[string]bool{}
	for _, key := range keys {
		switch kindOf(key) {
		case "scheduled", "queue", "unack", "dead":
			for _, id := range s.Client.ZRange(ctx, key, 0, -1).Val() {
				inSets[id] = true
			}
		case "messages":
			for _, id := range s.Client.HKeys(ctx, key).Val() {
				bodies[id] = true
			}
		}
	}
	assert.Equal(s.T, bodies, inSets, "ids with bodies against ids in sets")
}
