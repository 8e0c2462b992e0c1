package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// notAcked matches the reason that says how often handlers have seen the message.
var notAcked = regexp.MustCompile(`^not acked in (\d+) deliveries$`)

// TestDeadLettersWereSeen kills processes while they hold messages that no handler has
// seen. These must not become dead letters as if one had.
func TestDeadLettersWereSeen(t *testing.T) {
	onlyInFull(t)
	for _, maxDeliveries := range []int{1, 3} {
		for _, inFlight := range []int{1, 10} {
			t.Run(fmt.Sprintf("MaxDeliveries %d, MaxInFlight %d", maxDeliveries, inFlight), func(t *testing.T) {
				t.Parallel()
				s := newScene(t)
				count := 1500
				publish := s.job(func(j *job) { j.Publish, j.Name, j.Count, j.Batch = true, "m", count, 100 })
				require.NoError(t, publish.run(t.Context(), s.dial(), s.history.Add))
				deaths := s.dying(3, s.job(func(j *job) {
					j.MaxDeliveries, j.MaxInFlight, j.Lease, j.Handling = maxDeliveries, inFlight, 500*time.Millisecond, time.Millisecond
				}))
				s.judgeLetters(count, deaths*inFlight/maxDeliveries)
			})
		}
	}
}

// dying runs consumers that die after a random number of messages or at a random moment,
// and replaces them, until all messages are acked or dead letters.
func (s *scene) dying(together int, j job) (deaths int) {
	s.T.Helper()
	start := func() *process {
		j.DieAfter = 40 + rand.IntN(21)
		return spawn(s.T, j, s.history)
	}
	consumers := make([]*process, together)
	for i := range consumers {
		consumers[i] = start()
	}
	kill := time.After(0)
	for deadline := time.Now().Add(quiet); !s.settled(); {
		require.True(s.T, time.Now().Before(deadline), "in Redis: %v", s.sizes())
		i := rand.IntN(together)
		select {
		case <-kill: // whatever the process is doing
			consumers[i].kill()
			kill = time.After(200*time.Millisecond + rand.N(800*time.Millisecond))
		case <-consumers[i].done:
			consumers[i].wait()
		case <-time.After(5 * time.Millisecond):
			continue
		}
		deaths++
		consumers[i] = start()
	}
	stop(consumers)
	return deaths
}

// settled reports whether Redis has nothing but dead letters left.
func (s *scene) settled() bool {
	ctx := context.Background()
	for _, kind := range []string{"scheduled", "queue:g", "unack:g"} {
		if s.Client.ZCard(ctx, s.Key(kind)).Val() > 0 {
			return false
		}
	}
	return true
}

// judgeLetters fails the case if dead letters name more deliveries than handlers have seen,
// or if a message is neither handled nor a dead letter. A process may die between getting a
// message and telling of it; that is so seldom that one is allowed. Some may be dead letters
// unseen: those that were lost MaxDeliveries times, each time with a process that held MaxInFlight at most.
func (s *scene) judgeLetters(count, most int) {
	s.T.Helper()
	seen := map[string]int{}
	for _, e := range s.history.Events() {
		if e.Kind == Delivered {
			seen[e.ID]++
		}
	}
	letters, err := s.Client.HGetAll(context.Background(), s.Key("reasons:g")).Result()
	require.NoError(s.T, err)
	unseen, untrue := 0, 0
	for id, reason := range letters {
		if seen[id] == 0 {
			unseen++
		}
		said := notAcked.FindStringSubmatch(reason)
		if said == nil {
			assert.Contains(s.T, reason, "lost with its consumer", "dead letter %s", id)
			continue
		}
		if deliveries, _ := strconv.Atoi(said[1]); seen[id] < deliveries {
			untrue++
		}
	}
	s.T.Logf("%d dead letters of %d messages, %d of which name more deliveries than handlers have seen; no handler has seen "+
		"%d, at most %d", len(letters), count, untrue, unseen, most)
	assert.LessOrEqual(s.T, untrue, 1, "dead letters that name more deliveries than handlers have seen")
	assert.LessOrEqual(s.T, unseen, most, "dead letters that no handler has seen")
	report := s.history.Check([]string{"g"}, s.bodies(), nil)
	report.Stuck = nil // the dead letters
	assert.Empty(s.T, report.Failures())
	assert.Equal(s.T, count, report.Published[OK])
}

// TestAMessageThatKillsItsConsumer publishes messages that end the process of their
// handler. They become dead letters after at most MaxDeliveries + 1 hand-outs.
func TestAMessageThatKillsItsConsumer(t *testing.T) {
	onlyInFull(t)
	for _, maxDeliveries := range []int{1, 3} {
		for _, inFlight := range []int{1, 10} {
			t.Run(fmt.Sprintf("MaxDeliveries %d, MaxInFlight %d", maxDeliveries, inFlight), func(t *testing.T) {
				t.Parallel()
				s := newScene(t)
				good, killers := 500, 5
				for _, some := range []struct {
					name  string
					count int
				}{{"m", good / 2}, {"killer", killers}, {"n", good / 2}} {
					publish := s.job(func(j *job) { j.Publish, j.Name, j.Count, j.Batch = true, some.name, some.count, some.count })
					require.NoError(t, publish.run(t.Context(), s.dial(), s.history.Add))
				}
				deaths := s.replacing(s.job(func(j *job) {
					j.MaxDeliveries, j.MaxInFlight, j.Lease, j.Killer = maxDeliveries, inFlight, 500*time.Millisecond, "killer"
				}))
				handedOut := map[string]int{}
				for _, e := range s.history.Events() {
					if e.Kind == Delivered {
						handedOut[e.UUID]++
					}
				}
				dead := s.bodies()
				for n := range killers {
					killer := fmt.Sprint("killer-", n)
					assert.Contains(t, dead, killer, "dead letters")
					assert.LessOrEqual(t, handedOut[killer], maxDeliveries+1, "hand-outs of %s", killer)
				}
				s.judgeLetters(good+killers, deaths*inFlight/maxDeliveries)
			})
		}
	}
}

// replacing runs a consumer, and replaces it whenever it dies, until all messages are
// acked or dead letters.
func (s *scene) replacing(j job) (deaths int) {
	s.T.Helper()
	p := spawn(s.T, j, s.history)
	for deadline := time.Now().Add(quiet); !s.settled(); {
		require.True(s.T, time.Now().Before(deadline), "in Redis: %v", s.sizes())
		select {
		case <-p.done:
			p.wait()
			deaths++
			p = spawn(s.T, j, s.history)
		case <-time.After(5 * time.Millisecond):
		}
	}
	p.kill()
	return deaths
}
