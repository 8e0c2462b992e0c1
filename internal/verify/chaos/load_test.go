package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// TestPoison mixes messages that always fail with good ones. It measures the lateness with
// and without them in turns, since a busy machine delays both.
func TestPoison(t *testing.T) {
	onlyInFull(t)
	good, bad := 10_000, 100
	var without, with []time.Duration
	for range 3 {
		without = append(without, latenessOfTheGood(t, good, 0))
		with = append(with, latenessOfTheGood(t, good, bad))
	}
	t.Logf("lateness of the good messages, p99: %s without poison, %s with it", without, with)
	slices.Sort(without)
	slices.Sort(with)
	assert.LessOrEqual(t, with[1], 2*without[1], "medians")
}

// latenessOfTheGood is the 99th percentile of how late the good messages of a steady
// stream are, with bad messages spread among them.
func latenessOfTheGood(t *testing.T, good, bad int) time.Duration {
	t.Helper()
	const maxDeliveries = 3
	s := newScene(t)
	stop := s.inProcess(s.job(func(j *job) {
		j.MaxInFlight, j.MaxDeliveries, j.Poison, j.Handling = 10, maxDeliveries, "poison", time.Millisecond
		j.Lease = 30 * time.Second
	}), s.dial())
	var publishing sync.WaitGroup
	if bad > 0 {
		publishing.Go(func() {
			assert.NoError(t, s.job(func(j *job) {
				j.Publish, j.Name, j.Count, j.Every = true, "poison", bad, 50*time.Millisecond
			}).run(t.Context(), s.dial(), s.history.Add))
		})
	}
	publishing.Go(func() {
		assert.NoError(t, s.job(func(j *job) {
			j.Publish, j.Name, j.Count, j.Batch, j.Every = true, "good", good, 10, 5*time.Millisecond
		}).run(t.Context(), s.dial(), s.history.Add))
	})
	publishing.Wait()
	s.until("the poison is dead", quiet, func() bool {
		return s.Client.ZCard(t.Context(), s.Key("dead:g")).Val() == int64(bad)
	})
	s.until("the good messages are handled", quiet, func() bool { return s.history.Count(Handled) == good })
	stop()
	deliveries := map[string]int{}
	for _, e := range s.history.Events() {
		if e.Kind == Delivered {
			deliveries[e.UUID]++
		}
	}
	for i := range bad {
		require.Equal(t, maxDeliveries, deliveries[fmt.Sprint("poison-", i)])
	}
	for i := range good {
		require.Equal(t, 1, deliveries[fmt.Sprint("good-", i)])
	}
	return s.lateness("good", 0.99)
}

// TestThunderingBacklog makes many messages due at the same moment.
func TestThunderingBacklog(t *testing.T) {
	onlyInFull(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // a processor for Redis
	s := newScene(t)
	count := 300_000
	require.NoError(t, s.Client.ConfigSet(t.Context(), "slowlog-log-slower-than", "10000").Err())
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: s.dial()}, nil)
	require.NoError(t, err)
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: s.dial()}, nil)
	require.NoError(t, err)
	name := s.Topic
	within := 15 * time.Second
	for !s.backlog(publisher, subscriber, count, within) { // too slow: some were due before the last was stored
		within *= 2
		s.Topic = fmt.Sprint(name, "-", within)
	}
	scores := s.scores() // of all messages, since no subscriber runs yet

	messages, err := subscriber.Subscribe(context.Background(), s.Topic)
	require.NoError(t, err)
	var order []string
	for range count {
		select {
		case msg := <-messages:
			d, _ := redisdelay.DeliveryFromContext(msg.Context())
			order = append(order, fmt.Sprintf("%d %s", scores[d.ID], d.ID))
			msg.Ack()
		case <-time.After(quiet):
			require.Fail(t, "stuck", "%d of %d delivered", len(order), count)
		}
	}
	require.NoError(t, subscriber.Close())
	require.NoError(t, publisher.Close())
	assert.True(t, slices.IsSorted(order), "by due time, then in publishing order")
	assert.Len(t, slices.Compact(order), count)
	s.drained()
	assert.Zero(t, s.Client.HLen(t.Context(), s.Key("messages")).Val())
	s.logSlow()
}

// backlog publishes messages with the same later due time to a topic with a group, and
// reports whether all were stored in time. Each call's delay is the time left until then.
func (s *scene) backlog(
	publisher message.Publisher, subscriber *redisdelay.Subscriber, count int, within time.Duration,
) bool {
	s.T.Helper()
	require.NoError(s.T, subscriber.SubscribeInitialize(s.Topic))
	due := time.Now().Add(within)
	const batch = 1000
	for n := 0; n < count; n += batch {
		var call []*message.Message
		for i := range batch {
			msg := message.NewMessage(fmt.Sprint(n+i), nil)
			delay.Message(msg, delay.Until(due))
			call = append(call, msg)
		}
		require.NoError(s.T, publisher.Publish(s.Topic, call...))
	}
	return time.Now().Before(due)
}

// scores returns the due times of the scheduled messages.
func (s *scene) scores() map[string]int64 {
	s.T.Helper()
	entries, err := s.Client.ZRangeWithScores(context.Background(), s.Key("scheduled"), 0, -1).Result()
	require.NoError(s.T, err)
	scores := map[string]int64{}
	for _, entry := range entries {
		scores[entry.Member.(string)] = int64(entry.Score)
	}
	return scores
}

// TestShutdown starts and stops consumers under load.
func TestShutdown(t *testing.T) {
	onlyInFull(t)
	s := newScene(t)
	ctx, cancel := context.WithCancel(t.Context())
	published := make(chan error, 1)
	go func() {
		j := s.job(func(j *job) { j.Publish, j.Name, j.Batch, j.Every = true, "m", 3, time.Millisecond })
		published <- j.run(ctx, s.dial(), s.history.Add)
	}()
	for range 500 {
		stop := s.inProcess(s.job(func(j *job) { j.Lease, j.MaxInFlight = 10*time.Minute, 1+rand.IntN(5) }), s.dial())
		<-time.After(time.Duration(rand.IntN(30)) * time.Millisecond)
		start := time.Now()
		stop()
		require.Less(t, time.Since(start), 2*time.Second) // far less than a lease, or CloseTimeout
	}
	cancel()
	require.NoError(t, <-published)
	stop := s.inProcess(s.job(func(j *job) { j.Lease, j.MaxInFlight = 10*time.Minute, 5 }), s.dial())
	s.drained() // long before the leases end, since every message was given back
	stop()
	report := s.judge("g")
	assert.Zero(t, report.Redelivered)
	s.attemptsAreWhole()
}
