package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestTurns publishes messages with ordering keys and random delays, and cancels some, to consumers that fail, and that
// are killed or stopped past their leases all the time. Each key is handled in order, one message at a time.
func TestTurns(t *testing.T) {
	s := newScene(t)
	count := size(2000, 50_000)
	c := s.crowd(10)
	publisher := spawn(t, s.inTurns(count), s.history)
	c.disturb(count, time.Duration(count)*10*time.Millisecond)
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
		assert.NotContains(t, []string{"turns", "lanes"}, kindOf(key), "left: %s", key)
	}
}

// TestTurnsOverClusterFailovers is TestTurns while masters are killed, and live ones demoted. Redis may forget what its
// replicas have not got yet: messages of which that shows are excused.
func TestTurnsOverClusterFailovers(t *testing.T) {
	if !*full {
		t.Skip("takes minutes")
	}
	cluster := redistest.NewCluster(t)
	s := newSceneOn(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	})
	s.cluster = cluster.Addrs()
	const count = 50_000
	c := s.crowd(10)
	publisher := spawn(t, s.inTurns(count), s.history)
	s.until("there are messages", quiet, func() bool { return s.history.Count(Handled) > 100 })
	stopping, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan int, 1)
	go func() { ended <- failovers(stopping, t, s, cluster) }()
	c.disturb(count, 12*time.Minute)
	end()
	t.Logf("%d failovers", <-ended)
	publisher.wait()
	s.drained()
	stop(c.processes)
	report := s.history.Check([]string{"g"}, s.bodies(), s.cancelled())
	t.Logf("%s; %d cancelled, %d delivered again after an ack", report, len(s.cancelled()), len(report.Resurrected))
	forgotten := s.forgotten(report.Resurrected)
	report.Resurrected = nil
	assert.Empty(t, report.Failures())
	assert.Zero(t, report.Published[Failed])
	s.judgeTurns(forgotten)
}

// failovers kills masters, and demotes live ones, until stop ends. It returns how many.
func failovers(stop context.Context, t *testing.T, s *scene, cluster *redistest.Cluster) (n int) {
	for ; stop.Err() == nil; n++ {
		ctx, cancel := context.WithTimeout(t.Context(), healing)
		slot, err := s.Client.ClusterKeySlot(ctx, fmt.Sprint(s.Tag(), rand.IntN(turnsPartitions), "}:messages")).Result()
		switch {
		case err != nil: // the client has asked a master that is away
		case n%4 == 1:
			err = cluster.Failover(ctx, int(slot))
		default:
			err = cluster.KillMaster(ctx, int(slot))
		}
		cancel()
		assert.NoError(t, err)
	}
	return n
}

// turnsPartitions is how many partitions the topic has on a cluster.
const turnsPartitions = 6

// inTurns is the job that publishes messages with ordering keys, and cancels some.
func (s *scene) inTurns(count int) job {
	return s.job(func(j *job) {
		j.Publish, j.Name, j.Count, j.Batch, j.Keys, j.Spread, j.Every = true, "m", count, 20, size(20, 200), 500*time.Millisecond, 10*time.Millisecond
		j.CancelOneOf = 20
		if s.cluster != nil {
			j.Partitions, j.WaitReplicas, j.Every, j.Timeout = turnsPartitions, 1, 60*time.Millisecond, time.Minute
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

// disturb kills processes, or stops them past their leases, until nine of ten messages are handled.
func (c *crowd) disturb(count int, within time.Duration) {
	c.T.Helper()
	deadline := time.Now().Add(within)
	for c.history.Count(Handled) < count*9/10 {
		if time.Now().After(deadline) {
			c.T.Fatalf("in Redis: %v", c.sizes())
		}
		<-time.After(200 * time.Millisecond)
		i := rand.IntN(len(c.processes))
		if rand.IntN(2) == 0 {
			c.kills++
			c.processes[i].kill()
			c.start(i)
			continue
		}
		c.stops++
		c.processes[i].signal(syscall.SIGSTOP)
		<-time.After(crowdLease + 50*time.Millisecond)
		c.processes[i].signal(syscall.SIGCONT)
	}
	c.T.Logf("%d kills, %d stops", c.kills, c.stops)
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

// forgotten are messages of which Redis has forgotten something: those that came back after an ack, and those
// that were delivered twice with the same token.
func (s *scene) forgotten(resurrected []string) map[string]bool {
	type delivery struct {
		uuid  string
		token int64
	}
	forgotten, seen := map[string]bool{}, map[delivery]bool{}
	for _, uuid := range resurrected {
		forgotten[uuid] = true
	}
	for _, e := range s.history.Events() {
		d := delivery{e.UUID, e.Token}
		if e.Kind == Delivered {
			forgotten[e.UUID] = forgotten[e.UUID] || seen[d]
			seen[d] = true
		}
	}
	maps.DeleteFunc(forgotten, func(_ string, is bool) bool { return !is })
	s.T.Logf("%d messages of which Redis has forgotten something", len(forgotten))
	return forgotten
}

// handling is a delivery to a handler.
type handling struct {
	uuid     string
	token    int64
	from, to int64 // to is 1 << 62 if the handler has not ended
}

// judgeTurns fails the case unless the messages of each ordering key were handled one at a time, in the order of
// their due times. It leaves out messages of which Redis has forgotten something.
func (s *scene) judgeTurns(forgotten map[string]bool) {
	s.T.Helper()
	byKey, last := s.handlings()
	earliest, latest := s.dueTimes()
	overlaps, disorder, pairs := 0, 0, 0
	for key, list := range byKey {
		list = slices.DeleteFunc(list, func(h handling) bool { return forgotten[h.uuid] })
		slices.SortFunc(list, func(a, b handling) int { return int(a.from - b.from) })
		for i, a := range list {
			for _, b := range list[i+1:] {
				// Another delivery of the same message has taken over from a, if its consumer lost the lease.
				if a.uuid == b.uuid {
					continue
				}
				pairs++
				stale := a.token < last[a.uuid]
				if b.from < a.to && a.to < 1<<62 && !stale {
					overlaps++
					s.T.Logf("key %s: %v and %v at once", key, a, b)
				}
				if latest[b.uuid] < earliest[a.uuid] && !stale {
					disorder++
					s.T.Logf("key %s: %v before %v, which was due before it", key, a, b)
				}
			}
		}
	}
	s.T.Logf("%d keys, %d pairs of deliveries", len(byKey), pairs)
	assert.NotZero(s.T, pairs)
	assert.Zero(s.T, overlaps, "handled at once")
	assert.Zero(s.T, disorder, "handled out of order")
}

func redisKeys(s *scene) []string {
	keys, err := s.Keys(context.Background())
	require.NoError(s.T, err)
	return keys
}

// handlings are the deliveries by their ordering keys, and the last token of each message.
func (s *scene) handlings() (byKey map[string][]handling, last map[string]int64) {
	byKey, last = map[string][]handling{}, map[string]int64{}
	type delivery struct {
		uuid, worker string
		token        int64
	}
	ends, cancels := map[delivery]int64{}, map[string]int64{}
	events := s.history.Events()
	for _, e := range events {
		if e.Kind == Cancelled && cancels[e.UUID] == 0 { // from then on, the next one may be handled
			cancels[e.UUID] = e.At
		}
		if e.Kind == Handled || e.Kind == Refused {
			ends[delivery{e.UUID, e.Worker, e.Token}] = e.At
		}
	}
	for _, e := range events {
		if e.Kind != Delivered {
			continue
		}
		end, ended := ends[delivery{e.UUID, e.Worker, e.Token}]
		if !ended {
			end = 1 << 62
		}
		if at, cancelled := cancels[e.UUID]; cancelled {
			end = min(end, at)
		}
		key := script.TraitsOf(e.ID).OrderingKey
		byKey[key] = append(byKey[key], handling{e.UUID, e.Token, e.At, end})
		last[e.UUID] = max(last[e.UUID], e.Token)
	}
	return byKey, last
}

// dueTimes are when each message was due at the earliest and at the latest, in µs: the publisher knows only when its
// call began and ended.
func (s *scene) dueTimes() (earliest, latest map[string]int64) {
	const rounding = 2000
	earliest, latest = map[string]int64{}, map[string]int64{}
	for _, e := range s.history.Events() {
		switch {
		case e.Kind != Published:
		case e.Outcome == OK:
			earliest[e.UUID], latest[e.UUID] = e.Due, e.At+e.Wait+rounding
		case latest[e.UUID] == 0:
			earliest[e.UUID], latest[e.UUID] = e.Due, 1<<62
		}
	}
	return earliest, latest
}
