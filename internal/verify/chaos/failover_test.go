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

const (
	// healing is how long a killed server may take to return as a replica.
	healing = 2 * time.Minute

	// resuming is how long messages may take to be delivered again: a busy machine may need a second election.
	resuming = time.Minute
)

// traffic publishes and consumes until the returned function is called, which waits for the backlog
// and returns the checker's report.
func (s *scene) traffic(partitions, waitReplicas int) (end func() Report) {
	s.T.Helper()
	var consumers []func()
	for range 2 {
		consumers = append(consumers, s.inProcess(s.job(func(j *job) { j.Lease, j.MaxInFlight = 2*time.Second, 5 }), s.dial()))
	}
	ctx, cancel := context.WithCancel(context.Background())
	published := make(chan error, 2)
	for n := range cap(published) {
		go func() {
			published <- s.job(func(j *job) {
				j.Publish, j.Name, j.Partitions, j.WaitReplicas = true, fmt.Sprint("p", n), partitions, waitReplicas
				j.Every, j.Delay, j.Timeout, j.Async = 2*time.Millisecond, 20*time.Millisecond, time.Minute, n == 1
			}).run(ctx, s.dial(), s.history.Add)
		}()
	}
	s.requireProgress()
	return func() Report {
		s.T.Helper()
		cancel()
		for range cap(published) {
			require.NoError(s.T, <-published)
		}
		s.drained()
		for _, stop := range consumers {
			stop()
		}
		report := s.history.Check([]string{"g"}, s.bodies(), nil)
		s.T.Log(report)
		s.consistent()
		return report
	}
}

// requireProgress waits until messages that are published from now on are handled, with enough calls to
// reach each partition many times.
func (s *scene) requireProgress() {
	s.T.Helper()
	before := s.history.Count(Published)
	s.until("messages are published", resuming, func() bool { return s.history.Count(Published) > before+200 })
	handled := s.history.Count(Handled)
	s.until("messages are handled", resuming, func() bool { return s.history.Count(Handled) > handled+200 })
}

// resumes waits until messages are delivered again after a fault, and logs how long that took.
func (s *scene) resumes() {
	s.T.Helper()
	start := time.Now()
	s.requireProgress()
	s.T.Logf("resumed after %s", time.Since(start).Round(time.Millisecond))
}

// judgeFailovers allows the losses of asynchronous replication: messages that the new master has
// not received, and acks, whose messages are redelivered.
func (s *scene) judgeFailovers(report Report, waited bool) {
	s.T.Helper()
	s.T.Logf("%d messages lost and %d delivered again after an ack", len(report.Lost), len(report.Resurrected))
	if !waited {
		report.Lost = nil
	}
	report.Resurrected = nil
	assert.Empty(s.T, report.Failures())
	assert.Zero(s.T, report.Published[Failed])
}

// TestClusterFailovers kills masters, and demotes live ones, under load.
func TestClusterFailovers(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	for name, waitReplicas := range map[string]int{"without WAIT": 0, "with WAIT": 1} {
		t.Run(name, func(t *testing.T) {
			cluster := redistest.NewCluster(t)
			s := newSceneOn(t, func() redis.UniversalClient {
				return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
			})
			const partitions = 6
			end := s.traffic(partitions, waitReplicas)
			for n := range size(2-waitReplicas, 20) {
				ctx, cancel := context.WithTimeout(t.Context(), healing)
				if slot := s.slot(ctx); n%4 == 1 {
					require.NoError(t, cluster.Failover(ctx, slot))
					s.requireProgress()
				} else {
					killed, err := cluster.Kill(ctx, slot)
					require.NoError(t, err)
					if waitReplicas == 0 { // else there is no replica to wait for
						s.resumes()
					}
					require.NoError(t, cluster.Heal(ctx, killed))
					s.requireProgress()
				}
				cancel()
			}
			s.judgeFailovers(end(), waitReplicas > 0)
		})
	}
}

// slot returns the slot of a partition of the topic. The client may first have to find new masters.
func (s *scene) slot(ctx context.Context) (slot int) {
	s.T.Helper()
	s.until("the client finds the topic", healing, func() bool {
		keys, err := s.Keys(ctx)
		if err != nil || len(keys) == 0 {
			return false
		}
		found, err := s.Client.ClusterKeySlot(ctx, keys[rand.IntN(len(keys))]).Result()
		slot = int(found)
		return err == nil
	})
	return slot
}

// TestClusterMigrations moves the slots of the topic between masters under load.
func TestClusterMigrations(t *testing.T) {
	beside(t)
	cluster := redistest.NewCluster(t, "--cluster-node-timeout", "5000") // no master is to be replaced
	s := newSceneOn(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	})
	end := s.traffic(4, 0)
	for range size(2, 50) {
		ctx, cancel := context.WithTimeout(t.Context(), healing)
		require.NoError(t, cluster.Migrate(ctx, s.slot(ctx)))
		cancel()
		s.requireProgress()
	}
	report := end()
	assert.Empty(t, report.Failures())
	assert.Zero(t, report.Published[Failed]+report.Published[Unknown])
}

// TestSentinelFailovers kills the master, and demotes a live one, under load.
func TestSentinelFailovers(t *testing.T) {
	onlyInFull(t)
	t.Parallel() // it mostly waits for elections
	for name, waitReplicas := range map[string]int{"without WAIT": 0, "with WAIT": 1} {
		t.Run(name, func(t *testing.T) {
			sentinel := redistest.NewSentinel(t)
			s := newSceneOn(t, func() redis.UniversalClient {
				return redis.NewFailoverClient(&redis.FailoverOptions{
					MasterName: sentinel.MasterName, SentinelAddrs: sentinel.Addrs(),
				})
			})
			end := s.traffic(1, waitReplicas)
			for n := range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), healing)
				if n%4 == 1 {
					require.NoError(t, sentinel.Failover(ctx))
					s.requireProgress()
				} else {
					killed, err := sentinel.Kill(ctx)
					require.NoError(t, err)
					if waitReplicas == 0 { // else there is no replica to wait for
						s.resumes()
					}
					require.NoError(t, sentinel.Heal(ctx, killed))
					s.requireProgress()
				}
				cancel()
			}
			s.judgeFailovers(end(), waitReplicas > 0)
		})
	}
}

// TestSentinelStalledReplica makes a replica the master that has received nothing for a while.
// Without WAIT, all messages that were published meanwhile are lost, although Publish returned nil.
// With WAIT, Publish returns an error.
func TestSentinelStalledReplica(t *testing.T) {
	onlyInFull(t)
	t.Parallel() // it mostly waits for elections
	for name, waitReplicas := range map[string]int{"without WAIT": 0, "with WAIT": 1} {
		t.Run(name, func(t *testing.T) {
			sentinel := redistest.NewSentinel(t)
			s := newSceneOn(t, func() redis.UniversalClient {
				return redis.NewFailoverClient(&redis.FailoverOptions{
					MasterName: sentinel.MasterName, SentinelAddrs: sentinel.Addrs(),
				})
			})
			const count, batch = 1000, 500
			publish := func(name string, waitReplicas int) {
				t.Helper()
				require.NoError(t, s.job(func(j *job) {
					j.Publish, j.Name, j.Count, j.Batch, j.WaitReplicas = true, name, count, batch, waitReplicas
				}).run(t.Context(), s.dial(), s.history.Add))
			}
			publish("before", 1) // the replica has these
			replica, err := sentinel.Replica(t.Context())
			require.NoError(t, err)
			require.NoError(t, replica.Signal(syscall.SIGSTOP))
			require.NoError(t, s.Client.ClientKillByFilter(t.Context(), "TYPE", "replica").Err())
			publish("meanwhile", waitReplicas)
			master, err := sentinel.Master(t.Context())
			require.NoError(t, err)
			require.NoError(t, master.Down())
			require.NoError(t, replica.Signal(syscall.SIGCONT))
			require.NoError(t, sentinel.Heal(t.Context(), master))
			publish("after", waitReplicas)

			stop := s.inProcess(s.job(func(j *job) { j.MaxInFlight = 10 }), s.dial())
			s.drained()
			stop()
			report := s.history.Check([]string{"g"}, s.bodies(), nil)
			t.Logf("%s; lost %d", report, len(report.Lost))
			if waitReplicas == 0 {
				assert.Len(t, report.Lost, count, "this is what WaitReplicas is for")
				report.Lost = nil
			} else {
				assert.Equal(t, count, report.Published[Unknown], "stored, but not replicated")
			}
			assert.Empty(t, report.Failures())
		})
	}
}
