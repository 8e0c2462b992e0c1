package chaos

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestConsumersKilled kills consumer processes in a loop.
func TestConsumersKilled(t *testing.T) {
	beside(t)
	s := newScene(t)
	count, kills := size(1000, 10_000), size(15, 200)
	publish := s.job(func(j *job) { j.Publish, j.Name, j.Count, j.Batch = true, "m", count, 10 })
	consume := s.job(func(j *job) { j.MaxInFlight, j.Handling = 5, 40*time.Millisecond })
	consumers := make([]*process, 4)
	for i := range consumers {
		consumers[i] = spawn(t, consume, s.history)
	}
	publisher := spawn(t, publish, s.history)
	s.until("messages are handled", quiet, func() bool { return s.history.Count(Handled) > 0 })
	for range kills {
		<-time.After(time.Duration(50+rand.IntN(100)) * time.Millisecond)
		i := rand.IntN(len(consumers))
		consumers[i].kill()
		consumers[i] = spawn(t, consume, s.history)
	}
	publisher.wait()
	s.drained()
	stop(consumers)
	report := s.judge("g")
	require.Equal(t, count, report.Published[OK])
	require.NotZero(t, report.Redelivered, "no consumer had a message in hand")
}

func stop(processes []*process) {
	for _, p := range processes {
		p.kill()
	}
}

// TestPublishersKilled kills publisher processes in the middle of a batch.
func TestPublishersKilled(t *testing.T) {
	beside(t)
	s := newScene(t)
	consumer := spawn(t, s.job(func(j *job) { j.MaxInFlight = 50 }), s.history)
	for n := range size(10, 200) {
		publisher := spawn(t, s.job(func(j *job) {
			j.Publish, j.Name, j.Batch, j.Delay = true, fmt.Sprint("p", n), 20, 30*time.Millisecond
			j.Async = n%2 == 1
		}), s.history)
		before := s.history.Count(Published)
		s.until("the publisher publishes", quiet, func() bool { return s.history.Count(Published) > before+100 })
		<-time.After(time.Duration(rand.IntN(5000)) * time.Microsecond)
		publisher.kill()
	}
	s.drained()
	consumer.kill()
	report := s.judge("g")
	require.NotZero(t, report.Published[Unknown], "no publisher was in the middle of a batch")
}

// TestRedisKilled kills Redis under load and keeps it down for up to five seconds, which is longer
// than the client retries. This Redis loses no acknowledged writes.
func TestRedisKilled(t *testing.T) {
	t.Parallel() // it mostly waits for Redis
	s := newScene(t, "--appendonly", "yes", "--appendfsync", "always")
	consumers := []*process{
		spawn(t, s.job(func(j *job) { j.MaxInFlight = 10 }), s.history),
		spawn(t, s.job(func(j *job) { j.MaxInFlight = 1 }), s.history),
	}
	var publishers []*process
	for n := range 2 {
		publishers = append(publishers, spawn(t, s.job(func(j *job) {
			j.Publish, j.Name, j.Batch, j.Delay, j.Timeout = true, fmt.Sprint("p", n), 3, 20*time.Millisecond, time.Minute
			if n == 1 {
				j.Async, j.Every = true, 5*time.Millisecond
			}
		}), s.history))
	}
	within := time.Duration(size(60, 5)) * time.Second // the short form shares the machine with many servers
	for range size(2, 30) {
		before := s.history.Count(Handled)
		s.until("consumers continue", within, func() bool { return s.history.Count(Handled) > before })
		<-time.After(time.Duration(rand.IntN(300)) * time.Millisecond)
		require.NoError(t, s.server.KillFor(time.Duration(rand.IntN(5000))*time.Millisecond))
		require.NoError(t, s.server.Wait())
		after := s.history.Count(Handled)
		s.until("consumers resume", within, func() bool { return s.history.Count(Handled) > after })
	}
	stop(publishers)
	s.drained()
	stop(consumers)
	s.judge("g")
}
