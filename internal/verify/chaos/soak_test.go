package chaos

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

var soak = flag.Duration("soak", 7*time.Second, "how long TestSoak runs")

// TestSoak mixes faults under steady traffic with 20 consumers, and checks that no
// resource grows.
func TestSoak(t *testing.T) {
	beside(t)
	s := newScene(t, "--appendonly", "yes", "--appendfsync", "always")
	proxy := redistest.NewProxy(t, s.addr, func(_ int, command []string) string {
		if strings.HasPrefix(strings.ToLower(command[0]), "eval") && rand.IntN(500) == 0 {
			return redistest.Cut
		}
		return ""
	})
	consumers := spawn(t, s.job(func(j *job) {
		j.Addr, j.Consumers, j.Lease, j.MaxInFlight = proxy, 20, 5*time.Second, 2
		j.FailFirst, j.Poison = 1, "m-1"
	}), s.history)
	publisher := spawn(t, s.job(func(j *job) {
		j.Addr, j.Publish, j.Name, j.Every = proxy, true, "m", 5*time.Millisecond
		j.Delay, j.Timeout = 100*time.Millisecond, time.Minute
	}), s.history)

	faults := []func(){
		func() { require.NoError(t, s.server.Signal(syscall.SIGKILL)) },
		func() { _ = s.Client.ScriptFlush(t.Context()).Err() },
		func() { _ = s.Client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err() },
		func() { _ = s.Client.ClientKillByFilter(t.Context(), "TYPE", "normal").Err() },
		func() {
			require.NoError(t, s.server.Signal(syscall.SIGSTOP))
			<-time.After(time.Second)
			require.NoError(t, s.server.Signal(syscall.SIGCONT))
		},
	}
	s.until("the consumers have started and report their usage", quiet, func() bool {
		return s.history.Count(Delivered) > 0 && s.history.Usage().Heap > 0
	})
	start := time.Now()
	var seen []usage
	for n := 0; time.Since(start) < *soak; n++ {
		published, acked := s.history.Count(Published), s.history.Count(Acked)
		faults[n%len(faults)]()
		pause := time.After(min(*soak/20, 10*time.Second))
		for waiting := true; waiting; {
			select {
			case <-pause:
				waiting = false
			case <-time.After(100 * time.Millisecond):
				seen = append(seen, s.usage())
			}
		}
		s.until("messages are published and acked between the faults", quiet, func() bool {
			return s.history.Count(Published) > published && s.history.Count(Acked) > acked
		})
	}
	publisher.kill()
	s.drained()
	consumers.kill()
	s.judge("g")
	s.flat(seen)
	assert.Less(t, s.Client.HLen(t.Context(), s.Key("claims:g")).Val(), int64(30))
	assert.Less(t, s.Client.HLen(t.Context(), s.Key("publishers")).Val(), int64(5))
}

// usage is the resources of Redis and the consumers.
type usage struct {
	keys, memory     int64 // in Redis
	heap, goroutines int64 // of the consumers' process, as last reported
}

func (s *scene) usage() usage {
	s.T.Helper()
	var u usage
	s.until("Redis answers", quiet, func() bool {
		keys, err := s.Client.DBSize(context.Background()).Result()
		info := s.Client.InfoMap(context.Background(), "memory")
		u.keys = keys
		u.memory, _ = strconv.ParseInt(info.Item("Memory", "used_memory"), 10, 64)
		return err == nil && info.Err() == nil
	})
	last := s.history.Usage()
	u.heap, u.goroutines = last.Heap, int64(last.Goroutines)
	return u
}

// flat asserts that usage does not grow from the second quarter of the time to the last. In the
// first quarter, connections fill their pools. It compares medians, because faults begin and end,
// each at least once in a quarter.
func (s *scene) flat(seen []usage) {
	s.T.Helper()
	quarter := len(seen) / 4
	early, late := median(seen[quarter:2*quarter]), median(seen[len(seen)-quarter:])
	s.T.Logf("usage: %+v, at the end %+v", early, late)
	assert.LessOrEqual(s.T, late.keys, early.keys+5)
	if *soak >= time.Minute { // before that, a backlog on a slow machine takes more memory than a leak
		assert.Less(s.T, late.memory, early.memory*3/2)
	}
	assert.Less(s.T, late.heap, early.heap*3/2)
	assert.Less(s.T, late.goroutines, early.goroutines*3/2)
}

func median(seen []usage) usage {
	of := func(figure func(usage) int64) int64 {
		sorted := make([]int64, len(seen))
		for i, u := range seen {
			sorted[i] = figure(u)
		}
		slices.Sort(sorted)
		return sorted[len(sorted)/2]
	}
	return usage{
		keys:       of(func(u usage) int64 { return u.keys }),
		memory:     of(func(u usage) int64 { return u.memory }),
		heap:       of(func(u usage) int64 { return u.heap }),
		goroutines: of(func(u usage) int64 { return u.goroutines }),
	}
}
