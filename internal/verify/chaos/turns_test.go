package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOrderingKeysUnderFaults publishes messages with ordering keys and random delays, and cancels some. Its consumers fail, and are
// killed or stopped past their leases all the time. The messages of each key must be handled in order, one at a time.
func TestOrderingKeysUnderFaults(t *testing.T) {
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
	s.judgeTurns()
	for _, key := range redisKeys(s) {
		assert.NotContains(t, []string{"turns", "blocked"}, kindOf(key), "left: %s", key)
	}
}

// inTurns returns the job that publishes messages with ordering keys, and cancels some.
func (s *scene) inTurns(count int) job {
	return s.job(func(j *job) {
		j.Publish, j.Name, j.Count, j.Batch, j.Keys, j.Spread, j.Every = true, "m", count, 20, 200, 500*time.Millisecond, 10*time.Millisecond
		j.CancelOneOf = 20
	})
}

// crowd is a set of processes that consume, and are killed and stopped.
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

// cancelled returns the messages that were cancelled, as far as is known.
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
