package chaos

import (
	"context"
	"flag"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var soak = flag.Duration("soak", 10*time.Second, "how long TestSoak runs")

// TestSoak mixes faults under steady traffic with 20 consumers, and watches that
// nothing grows.
func TestSoak(t *testing.T) {
	s := newScene(t, "--appendonly", "yes", "--appendfsync", "always")
	p := startProxy(t, s.addr, func(command []string) fate {
		if strings.HasPrefix(strings.ToLower(command[0]), "eval") && rand.IntN(500) == 0 {
			return cut
		}
		return pass
	})
	var stops []func()
	for range 20 {
		stops = append(stops, s.inProcess(s.job(func(j *job) {
			j.Lease, j.MaxInFlight = 5*time.Second, 2
			j.FailFirst, j.Poison = 1, "m-1"
		}), s.dialAt(p.addr)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	published := make(chan error, 1)
	go func() {
		j := s.job(func(j *job) {
			j.Publish, j.Name, j.Every, j.Delay, j.Timeout = true, "m", 2*time.Millisecond, 100*time.Millisecond, time.Minute
		})
		published <- j.run(ctx, s.dial(), s.history.Add)
	}()
	faults := []func(){
		func() { require.NoError(t, s.server.Signal(syscall.SIGKILL)) },
		func() { _ = s.client.ScriptFlush(t.Context()).Err() },
		func() { _ = s.client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err() },
		func() { _ = s.client.ClientKillByFilter(t.Context(), "TYPE", "normal").Err() },
		func() {
			require.NoError(t, s.server.Signal(syscall.SIGSTOP))
			<-time.After(time.Second)
			require.NoError(t, s.server.Signal(syscall.SIGCONT))
		},
	}
	end := time.Now().Add(*soak)
	<-time.After(*soak / 10)
	early := s.usage()
	for n := 0; time.Now().Before(end); n++ {
		faults[n%len(faults)]()
		<-time.After(min(*soak/20, 10*time.Second))
	}
	late := s.usage()
	cancel()
	require.NoError(t, <-published)
	s.drained()
	for _, stop := range stops {
		stop()
	}
	s.judge("g")
	t.Logf("goroutines %d to %d, keys %d to %d", early.goroutines, late.goroutines, early.keys, late.keys)
	assert.Less(t, late.goroutines, early.goroutines+100)
	assert.LessOrEqual(t, late.keys, early.keys+5)
	assert.Less(t, s.client.HLen(t.Context(), s.key("claims:g")).Val(), int64(30))
	assert.Less(t, s.client.HLen(t.Context(), s.key("publishers")).Val(), int64(5))
}

type usage struct {
	goroutines int
	keys       int64
}

func (s *scene) usage() usage {
	s.t.Helper()
	var keys int64
	s.until("Redis answers", quiet, func() bool {
		n, err := s.client.DBSize(context.Background()).Result()
		keys = n
		return err == nil
	})
	return usage{runtime.NumGoroutine(), keys}
}
