package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// TestTurns publishes messages with ordering keys and random delays to consumers that fail, and that are killed
// or stopped past their leases all the time. Each key is handled in order, one message at a time.
func TestTurns(t *testing.T) {
	s := newScene(t)
	const lease = 300 * time.Millisecond
	keys, count, consumers := size(20, 200), size(2000, 50_000), make([]*process, 10)
	consume := s.job(func(j *job) {
		j.Lease, j.MaxInFlight, j.Handling, j.FailOneOf = lease, 10, 5*time.Millisecond, 10
	})
	start := func(i int) {
		consume.Name = fmt.Sprint("c", i, " ", rand.Uint32())
		consumers[i] = spawn(t, consume, s.history)
	}
	for i := range consumers {
		start(i)
	}
	publisher := spawn(t, s.job(func(j *job) {
		j.Publish, j.Name, j.Count, j.Batch, j.Keys, j.Spread, j.Every = true, "m", count, 20, keys, 500*time.Millisecond, 10*time.Millisecond
	}), s.history)
	deadline := time.Now().Add(time.Duration(count) * 10 * time.Millisecond)
	for s.history.Count(Handled) < count*9/10 {
		require.True(t, time.Now().Before(deadline), "in Redis: %v", s.sizes())
		<-time.After(200 * time.Millisecond)
		i := rand.IntN(len(consumers))
		if rand.IntN(2) == 0 {
			consumers[i].kill()
			start(i)
			continue
		}
		consumers[i].signal(syscall.SIGSTOP)
		<-time.After(lease + 50*time.Millisecond)
		consumers[i].signal(syscall.SIGCONT)
	}
	publisher.wait()
	s.drained()
	stop(consumers)
	report := s.judge("g")
	require.Equal(t, count, report.Published[OK])
	s.judgeTurns()
}

// handling is a delivery to a handler.
type handling struct {
	uuid     string
	token    int64
	from, to int64 // to is 1 << 62 if the handler has not ended
}

// judgeTurns fails the case unless the messages of each ordering key were handled one at a time, in the order of
// their due times, and nothing is left of their turns.
func (s *scene) judgeTurns() {
	s.T.Helper()
	byKey, last := s.handlings()
	earliest, latest := s.dueTimes()
	overlaps, disorder, pairs := 0, 0, 0
	for key, list := range byKey {
		slices.SortFunc(list, func(a, b handling) int { return int(a.from - b.from) })
		for i, a := range list {
			for _, b := range list[i+1:] {
				if a.uuid == b.uuid {
					continue
				}
				pairs++
				// Another delivery of the same message has taken over from a, if its consumer lost the lease.
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
	for _, key := range redisKeys(s) {
		assert.NotContains(s.T, []string{"turns", "lanes"}, kindOf(key), "left: %s", key)
	}
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
	ends := map[delivery]int64{}
	events := s.history.Events()
	for _, e := range events {
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
