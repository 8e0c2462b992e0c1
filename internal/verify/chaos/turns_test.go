package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestTurns publishes messages with ordering keys and random delays, and cancels some, to consumers that fail, and that
// are killed or stopped past their leases all the time. Each key is handled in order, one message at a time.
func TestTurns(t *testing.T) {
	onlyInFull(t)
	s := newScene(t)
	count := 50_000
	c := s.crowd(10)
	publisher := spawn(t, s.inTurns(count), s.history)
	c.disturb(count, 500*time.Second)
	publisher.wait()
	s.drained()
	stop(c.processes)
	report := s.history.Check([]string{"g"}, s.bodies(), s.cancelled())
	t.Logf("%s; %d cancelled", report, len(s.cancelled()))
	require.Empty(t, report.Failures())
	require.Equal(t, count, report.Published[OK])
	require.NotZero(t, s.history.Count(Acked), "no worker tells of acks that Redis has accepted")
	s.judgeTurns(nil)
	for _, key := range redisKeys(s) {
		assert.NotContains(t, []string{"turns", "blocked"}, kindOf(key), "left: %s", key)
	}
}

// TestTurnsOverClusterFailovers is TestTurns while masters are killed, and live ones demoted. Replicas are always a
// little behind, so a killed master takes some writes with it: the last ones of its partitions. What Publish has
// returned nil for is not among them, since it waits for a replica. Left out of the judging is only what such a loss
// explains:
//   - a message that comes again after Redis has accepted its ack (counted and logged);
//   - a delivery whose claim is lost: a later claim of the message has the same token, or a lower one;
//   - the end of a turn in which a token was given out twice: the ack of either consumer ends it;
//   - a delivery that was claimed in the last second before a master was killed, if its message was cancelled
//     or an older delivery of it ended it. It may be lost too, but no later claim shows that.
func TestTurnsOverClusterFailovers(t *testing.T) {
	onlyInFull(t)
	cluster := redistest.NewCluster(t)
	s := newSceneOn(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	})
	s.cluster = cluster.Addrs()
	c := s.crowd(10)
	publishing, stopPublishing := context.WithCancel(t.Context())
	defer stopPublishing()
	published := make(chan error, 1)
	go func() { published <- s.inTurns(0).run(publishing, s.dial(), s.history.Add) }()
	s.until("there are messages", quiet, func() bool { return s.history.Count(Handled) > 100 })
	var kills []int64
	over := make(chan error, 1)
	go func() {
		var err error
		kills, err = s.failovers(t.Context(), cluster)
		over <- err
	}()
	err := c.disturbUntil(over)
	stopPublishing()
	require.NoError(t, <-published)
	s.drained()
	stop(c.processes)
	require.NoError(t, err)
	report := s.history.Check([]string{"g"}, s.bodies(), s.cancelled())
	t.Logf("%d failovers, %d of them by kills; %s; %d handled, %d cancelled, %d delivered again after an ack",
		turnsFailovers, len(kills), report, s.history.Count(Handled), len(s.cancelled()), len(report.Resurrected))
	report.Resurrected = nil
	assert.Empty(t, report.Failures())
	assert.Zero(t, report.Published[Failed])
	assert.Greater(t, report.Published[OK], 1000)
	s.judgeTurns(kills)
}

const turnsFailovers = 8

// failovers kills masters, and demotes every fourth live one. After each it waits until the cluster has all its replicas
// and messages are handled again. It returns when it killed masters, in µs.
func (s *scene) failovers(ctx context.Context, cluster *redistest.Cluster) (kills []int64, err error) {
	for n := range turnsFailovers {
		slot, err := s.anySlot(ctx)
		if err != nil {
			return kills, err
		}
		within, cancel := context.WithTimeout(ctx, healing)
		defer cancel()
		if n%4 == 1 {
			err = cluster.Failover(within, slot)
		} else {
			var killed *redistest.Server
			killed, err = cluster.Kill(within, slot)
			kills = append(kills, time.Now().UnixMicro())
			if err == nil {
				err = cluster.Heal(within, killed)
			}
		}
		if err == nil {
			err = s.handles(within, 200)
		}
		if err != nil {
			return kills, fmt.Errorf("failover %d: %w", n, err)
		}
	}
	return kills, nil
}

// anySlot is the slot of some partition of the topic. The client may first have to learn of new masters.
func (s *scene) anySlot(ctx context.Context) (int, error) {
	for {
		keys, err := s.Keys(ctx)
		if err == nil && len(keys) > 0 {
			slot, err := s.Client.ClusterKeySlot(ctx, keys[rand.IntN(len(keys))]).Result()
			if err == nil {
				return int(slot), nil
			}
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// handles waits until so many more messages are handled.
func (s *scene) handles(ctx context.Context, count int) error {
	for before := s.history.Count(Handled); s.history.Count(Handled) < before+count; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("messages do not go on: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// turnsPartitions is how many partitions the topic has on a cluster.
const turnsPartitions = 6

// inTurns is the job that publishes messages with ordering keys, and cancels some.
func (s *scene) inTurns(count int) job {
	return s.job(func(j *job) {
		j.Publish, j.Name, j.Count, j.Batch, j.Keys, j.Spread, j.Every = true, "m", count, 20, 200, 500*time.Millisecond, 10*time.Millisecond
		j.CancelOneOf = 20
		if s.cluster != nil {
			j.Keys, j.Partitions, j.WaitReplicas, j.Every, j.Timeout = 100, turnsPartitions, 1, 100*time.Millisecond, time.Minute
		}
	})
}

// crowd is processes that consume, and are killed and stopped.
type crowd struct {
	*scene
	consume      job
	processes    []*process
	kills, stops int
}

const crowdLease = 300 * time.Millisecond

func (s *scene) crowd(many int) *crowd {
	c := &crowd{scene: s, processes: make([]*process, many), consume: s.job(func(j *job) {
		j.Lease, j.MaxInFlight, j.Handling, j.FailOneOf = crowdLease, 10, 5*time.Millisecond, 10
	})}
	for i := range c.processes {
		c.start(i)
	}
	return c
}

func (c *crowd) start(i int) {
	c.T.Helper()
	c.consume.Name = fmt.Sprint("c", i, " ", rand.Uint32())
	c.processes[i] = spawn(c.T, c.consume, c.history)
}

// disturb disturbs the crowd until nine of ten messages are handled.
func (c *crowd) disturb(count int, within time.Duration) {
	c.T.Helper()
	deadline := time.Now().Add(within)
	for c.history.Count(Handled) < count*9/10 {
		if time.Now().After(deadline) {
			c.T.Fatalf("in Redis: %v", c.sizes())
		}
		c.disturbOne()
	}
	c.T.Logf("%d kills, %d stops", c.kills, c.stops)
}

// disturbUntil disturbs the crowd until something is over, and returns its error.
func (c *crowd) disturbUntil(over <-chan error) error {
	c.T.Helper()
	for {
		select {
		case err := <-over:
			c.T.Logf("%d kills, %d stops", c.kills, c.stops)
			return err
		default:
			c.disturbOne()
		}
	}
}

// disturbOne kills a process and starts another, or stops it past its leases.
func (c *crowd) disturbOne() {
	c.T.Helper()
	<-time.After(200 * time.Millisecond)
	i := rand.IntN(len(c.processes))
	if rand.IntN(2) == 0 {
		c.kills++
		c.processes[i].kill()
		c.start(i)
		return
	}
	c.stops++
	c.processes[i].signal(syscall.SIGSTOP)
	<-time.After(crowdLease + 50*time.Millisecond)
	c.processes[i].signal(syscall.SIGCONT)
}

// cancelled are messages that were cancelled, as far as is known.
func (s *scene) cancelled() (uuids []string) {
	last := map[string]Outcome{}
	for _, e := range s.history.Events() {
		if e.Kind == Cancelled {
			last[e.UUID] = e.Outcome
		}
	}
	for uuid, outcome := range last {
		if outcome != Failed {
			uuids = append(uuids, uuid)
		}
	}
	return uuids
}

func redisKeys(s *scene) []string {
	keys, err := s.Keys(context.Background())
	require.NoError(s.T, err)
	return keys
}
