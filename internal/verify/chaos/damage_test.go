package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// healthy runs traffic on another topic of the same server, which the damage must not affect. The
// returned function ends the traffic and judges it.
func (s *scene) healthy() (judge func()) {
	s.T.Helper()
	other := newSceneAt(s.T, s.addr)
	other.Topic += "-healthy"
	stop := other.inProcess(other.job(func(j *job) { j.Lease, j.MaxInFlight = 30*time.Second, 5 }), s.dial())
	ctx, cancel := context.WithCancel(context.Background())
	published := make(chan error, 1)
	go func() {
		j := other.job(func(j *job) { j.Publish, j.Name, j.Every, j.Delay = true, "h", 5*time.Millisecond, 20*time.Millisecond })
		published <- j.run(ctx, s.dial(), other.history.Add)
	}()
	return func() {
		s.T.Helper()
		cancel()
		require.NoError(s.T, <-published)
		other.drained()
		stop()
		report := other.judge("g")
		require.Zero(s.T, report.Redelivered)
		require.Less(s.T, other.lateness("", 0.99), 2*time.Second, "the healthy topic must not slow down")
	}
}

// lateness returns a quantile of how late the first deliveries were, of messages whose UUIDs start
// with name.
func (s *scene) lateness(name string, quantile float64) time.Duration {
	s.T.Helper()
	due := map[string]int64{}
	var late []int64
	for _, e := range s.history.Events() {
		switch {
		case e.Kind == Published:
			due[e.UUID] = e.Due
		case e.Kind == Delivered && e.Attempt == 1 && strings.HasPrefix(e.UUID, name):
			late = append(late, e.At-due[e.UUID])
		}
	}
	require.NotEmpty(s.T, late)
	slices.Sort(late)
	return time.Duration(late[int(quantile*float64(len(late)-1))]) * time.Microsecond
}

// limited asserts that errors were logged, at most a few times a second.
func (l *errorLog) limited(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NotEmpty(t, l.errors, "damage must be logged")
	most, within := 0, 0
	for i := range l.times {
		for l.times[i].Sub(l.times[within]) > time.Second {
			within++
		}
		most = max(most, i-within+1)
	}
	assert.LessOrEqual(t, most, 5, "errors in one second, of claims, settlements and leases together: %v", l.errors[:min(20, len(l.errors))])
}

// TestDamagedBodies deletes and corrupts bodies in Redis.
func TestDamagedBodies(t *testing.T) {
	onlyInFull(t)
	s := newScene(t)
	judgeHealthy := s.healthy()
	count := 3000
	publish := s.job(func(j *job) {
		j.Publish, j.Name, j.Count, j.Batch, j.Delay = true, "m", count, 100, 500*time.Millisecond
	})
	require.NoError(t, publish.run(t.Context(), s.dial(), s.history.Add))
	ids := s.Client.ZRange(t.Context(), s.Key("scheduled"), 0, -1).Val()
	require.Len(t, ids, count)
	garbled := map[string]string{}
	for i, id := range ids {
		switch i % 10 {
		case 0:
			require.NoError(t, s.Client.HDel(t.Context(), s.Key("messages"), id).Err())
		case 1:
			garbled[id] = fmt.Sprint("garbage ", i)
			require.NoError(t, s.Client.HSet(t.Context(), s.Key("messages"), id, garbled[id]).Err())
		}
	}
	stop := s.inProcess(s.job(func(j *job) { j.MaxInFlight = 3 }), s.dial())
	s.until("the rest is handled", quiet, func() bool { return s.history.Count(Handled) == count*8/10 })
	s.until("the damaged messages are dead messages", quiet, func() bool {
		return s.Client.ZCard(t.Context(), s.Key("dead:g")).Val() == int64(count*2/10)
	})
	stop()
	for id, body := range garbled {
		assert.Equal(t, body, s.Client.HGet(t.Context(), s.Key("messages"), id).Val(), "the raw bytes are kept")
		assert.Contains(t, s.Client.HGet(t.Context(), s.Key("reasons:g"), id).Val(), "cannot decode")
	}
	judgeHealthy()
}

// TestKeysOfAnotherType overwrites each key in turn with a string.
func TestKeysOfAnotherType(t *testing.T) {
	onlyInFull(t)
	for _, kind := range []string{"scheduled", "messages", "groups", "queue:g", "unack:g", "attempts:g", "claims:g", "dead:g"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			judgeHealthy := s.healthy()
			var log errorLog
			stop := s.inProcess(s.job(func(j *job) { j.Lease, j.MaxInFlight, j.logger = 30*time.Second, 3, &log }), s.dial())
			publish := s.job(func(j *job) { j.Publish, j.Name, j.Count, j.Batch = true, "m", 100, 10 })
			require.NoError(t, publish.run(t.Context(), s.dial(), s.history.Add))
			s.until("all is handled", quiet, func() bool { return s.history.Count(Handled) == 100 })
			s.until("all is acked", quiet, func() bool { return s.Client.HLen(t.Context(), s.Key("messages")).Val() == 0 })

			require.NoError(t, s.Client.Del(t.Context(), s.Key(kind)).Err())
			require.NoError(t, s.Client.Set(t.Context(), s.Key(kind), "damage", 0).Err())
			require.NoError(t, s.Client.Publish(t.Context(), s.Key("wake"), "0").Err())
			s.until("the damage is logged", quiet, func() bool {
				return slices.ContainsFunc(log.lines(), func(line string) bool { return strings.Contains(line, s.Key(kind)) })
			})
			<-time.After(5 * time.Second)
			log.limited(t)

			// After the repair, the subscription continues by itself.
			require.NoError(t, s.Client.Del(t.Context(), s.Key(kind)).Err())
			publish.Name = "repaired"
			require.NoError(t, publish.run(t.Context(), s.dial(), s.history.Add))
			s.drained()
			stop()
			s.judge("g")
			judgeHealthy()
		})
	}
}

// TestRightsWithdrawn removes a consumer's rights to single commands, so that scripts stop halfway,
// and then restores them.
func TestRightsWithdrawn(t *testing.T) {
	onlyInFull(t)
	s := newScene(t)
	judgeHealthy := s.healthy()
	redistest.Command(t, s.Client, "ACL", "SETUSER", "worker", "on", ">pw", "~*", "&*", "+@all")
	client := redis.NewClient(&redis.Options{Addr: s.addr, Username: "worker", Password: "pw"})
	t.Cleanup(func() { _ = client.Close() })
	var log errorLog
	stop := s.inProcess(s.job(func(j *job) {
		j.Lease, j.MaxInFlight, j.logger = 30*time.Second, 5, &log
		j.FailFirst, j.Poison = 1, "m-1"
	}), client)
	ctx, cancel := context.WithCancel(t.Context())
	published := make(chan error, 1)
	go func() {
		j := s.job(func(j *job) { j.Publish, j.Name, j.Every = true, "m", 5*time.Millisecond })
		published <- j.run(ctx, s.dial(), s.history.Add)
	}()
	for _, command := range []string{"zadd", "zrem", "hset", "hdel", "evalsha", "hmget", "time"} {
		before := s.history.Count(Handled)
		s.until("messages are handled", quiet, func() bool { return s.history.Count(Handled) > before+20 })
		redistest.Command(t, s.Client, "ACL", "SETUSER", "worker", "-"+command)
		<-time.After(3 * time.Second)
		redistest.Command(t, s.Client, "ACL", "SETUSER", "worker", "+"+command)
	}
	cancel()
	require.NoError(t, <-published)
	s.drained()
	stop()
	s.judge("g")
	log.limited(t)
	judgeHealthy()
}

// TestGroupsDeleted deletes the registrations of groups while subscribers run.
func TestGroupsDeleted(t *testing.T) {
	onlyInFull(t)
	s := newScene(t)
	judgeHealthy := s.healthy()
	stop := s.inProcess(s.job(func(j *job) { j.MaxInFlight = 3 }), s.dial())
	publish := s.job(func(j *job) { j.Publish, j.Name, j.Count, j.Batch, j.Delay = true, "", 50, 10, 20*time.Millisecond })
	for n := range 100 {
		publish.Name = fmt.Sprint("m", n)
		require.NoError(t, publish.run(t.Context(), s.dial(), s.history.Add))
		require.NoError(t, s.Client.Del(t.Context(), s.Key("groups")).Err())
	}
	s.drained()
	stop()
	s.judge("g")
	judgeHealthy()
}
