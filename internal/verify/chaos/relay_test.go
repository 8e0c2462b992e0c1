package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/relay"
)

// The ways in which a worker relays the topic to a stream.
const (
	inOneStep = "in one step"
	published = "published"
)

// toStream relays the topic until ctx ends.
func (j job) toStream(ctx context.Context, client redis.UniversalClient) error {
	streams := redisstream.PublisherConfig{Client: client}
	if j.ToStream == published { // by another client, as a stream elsewhere would be
		streams.Client = redis.NewClient(&redis.Options{Addr: j.Addr})
	}
	r, err := relay.New(relay.Config{
		Client: client, Streams: &streams, Topics: []string{j.Topic}, LeaseDuration: j.Lease,
	}, j.logger)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// readStream consumes the stream with stock redisstream.
func (j job) readStream(ctx context.Context, client redis.UniversalClient, report func(Event)) error {
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: client, ConsumerGroup: j.Group, OldestId: "0", DisableIndefiniteInitialBlock: true,
		ClaimInterval: 200 * time.Millisecond, MaxIdleTime: j.Lease,
	}, j.logger)
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, j.Topic)
	if err != nil {
		return err
	}
	for msg := range messages {
		report(Event{Kind: Delivered, UUID: msg.UUID, Group: j.Group})
		report(Event{Kind: Handled, UUID: msg.UUID, Group: j.Group})
		msg.Ack()
	}
	return nil
}

// TestRelayToAStreamKilled kills relays, and redisstream's consumers of the stream. Other consumers
// claim the pending messages of killed ones.
func TestRelayToAStreamKilled(t *testing.T) {
	onlyInFull(t)
	for _, how := range []string{inOneStep, published} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			count, kills := 50_000, 100
			relays := s.job(func(j *job) { j.ToStream, j.Lease = how, 500*time.Millisecond })
			consume := s.job(func(j *job) { j.FromStream, j.Lease = true, time.Second })
			var workers [4]*process
			start := func(i int) {
				if i%2 == 0 {
					workers[i] = spawn(t, relays, s.history)
				} else {
					workers[i] = spawn(t, consume, s.history)
				}
			}
			for i := range workers {
				start(i)
			}
			publishing := s.publishDelayed(count, time.Duration(kills)*130*time.Millisecond)
			for n := range kills {
				<-time.After(time.Duration(80+rand.IntN(100)) * time.Millisecond)
				i := n % len(workers)
				workers[i].kill()
				start(i)
			}
			<-publishing
			s.drained()
			s.until("the stream is consumed", quiet, func() bool { return s.history.Count(Handled) == count })
			stop(workers[:])
			report := s.judgeDeliveries("g")
			require.Equal(t, count, report.Published[OK])
			again := s.inStream(count)
			t.Logf("%s: %d messages are in the stream again after %d kills", how, again, kills)
			if how == inOneStep {
				assert.Zero(t, again)
			}
		})
	}
}

// publishDelayed publishes messages with delays up to 2 s through a relay's publisher.
func (s *scene) publishDelayed(count int, within time.Duration) (done <-chan struct{}) {
	s.T.Helper()
	const each = 50
	streams, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: s.connect()}, nil)
	require.NoError(s.T, err)
	publisher, err := relay.NewPublisher(relay.PublisherConfig{Target: streams, Delayed: s.Publisher()})
	require.NoError(s.T, err)
	ended := make(chan struct{})
	go func() { // ends by itself
		defer close(ended)
		for n := 0; n < count; n += each {
			var call []*message.Message
			var events []Event
			for i := range each {
				by := time.Duration(1+rand.IntN(2000)) * time.Millisecond
				msg := message.NewMessage(fmt.Sprint("m-", n+i), []byte("payload"))
				events = append(events, Event{Kind: Published, UUID: msg.UUID, Due: time.Now().Add(by).UnixMicro()})
				delay.Message(msg, delay.For(by))
				call = append(call, msg)
			}
			outcome := OK
			if err := publisher.Publish(s.Topic, call...); err != nil {
				outcome = Failed
			}
			for _, e := range events {
				e.Outcome = outcome
				s.history.Add(e)
			}
			<-time.After(within * each / time.Duration(count))
		}
		assert.NoError(s.T, publisher.Close())
	}()
	return ended
}

// inStream checks that each message is in the stream, and none was added before it was due by
// Redis's clock. It returns how many duplicates there are.
func (s *scene) inStream(count int) (again int) {
	s.T.Helper()
	entries, err := s.Client.XRange(context.Background(), s.Topic, "-", "+").Result()
	require.NoError(s.T, err)
	due := map[string]int64{}
	for _, e := range s.history.Events() {
		if e.Kind == Published {
			due[e.UUID] = e.Due
		}
	}
	times := map[string]int{}
	for _, entry := range entries {
		uuid, _ := entry.Values[redisstream.UUIDHeaderKey].(string)
		ms, _, _ := strings.Cut(entry.ID, "-")
		at, err := strconv.ParseInt(ms, 10, 64)
		require.NoError(s.T, err)
		require.GreaterOrEqual(s.T, at, due[uuid]/1000, "%s is early", uuid)
		times[uuid]++
	}
	require.Len(s.T, times, count, "messages in the stream")
	return len(entries) - len(times)
}
