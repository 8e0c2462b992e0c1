package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestPasswordRotation changes the password of publishers under load and cuts their
// connections. They get the new one a moment later, and are refused by push.lua, which is
// certain, since Redis has no memory then. A Publish that fails for certain must have stored
// nothing, however the client's own retries end.
func TestPasswordRotation(t *testing.T) {
	onlyInFull(t)
	s := newScene(t)
	password := &atomic.Value{}
	rotate := func() {
		fresh := fmt.Sprint(rand.Uint64())
		redistest.Command(t, s.Client, "ACL", "SETUSER", "publisher", "on", "resetpass", ">"+fresh, "~*", "&*", "+@all")
		_ = s.Client.ClientKillByFilter(t.Context(), "USER", "publisher").Err() // the first time, there is no connection
		<-time.After(rand.N(30 * time.Millisecond))
		password.Store(fresh)
	}
	rotate()
	stop := s.inProcess(s.job(func(j *job) { j.Lease, j.MaxInFlight = 30*time.Second, 50 }), s.dial())
	ctx, cancel := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	for n := range 8 {
		client := redis.NewClient(&redis.Options{Addr: s.addr, CredentialsProvider: func() (string, string) {
			return "publisher", password.Load().(string)
		}})
		t.Cleanup(func() { _ = client.Close() })
		publishing.Go(func() {
			assert.NoError(t, s.job(func(j *job) {
				j.Publish, j.Name, j.Batch, j.Timeout = true, fmt.Sprint("p", n), 1+2*n, time.Second
			}).run(ctx, client, s.history.Add))
		})
	}
	for range 60 {
		before := s.history.Count(Handled)
		s.until("messages are handled", quiet, func() bool { return s.history.Count(Handled) > before })
		<-time.After(rand.N(50 * time.Millisecond))
		rotate()
		require.NoError(t, s.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
		// A round of calls has 64 messages in all, so some of these calls have begun and ended since.
		before = s.history.Count(Published)
		s.until("publishers go on", quiet, func() bool { return s.history.Count(Published) > before+100 })
		require.NoError(t, s.Client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	}
	cancel()
	publishing.Wait()
	s.drained()
	stop()
	report := s.judge("g")
	require.NotZero(t, report.Published[OK])
	require.NotZero(t, report.Published[Failed], "no call has failed for certain")
}
