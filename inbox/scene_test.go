package inbox

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/intake"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// scene is an inbox of a test's own.
type scene struct {
	*testing.T
	client redis.UniversalClient
	prefix string
}

func newScene(t *testing.T) scene { return newSceneWith(t, redistest.Client(t)) }

func newSceneWith(t *testing.T, client redis.UniversalClient) scene {
	return scene{t, client, "test-" + watermill.NewShortUUID()}
}

func (s scene) inbox(change ...func(*Config)) *Inbox {
	s.Helper()
	config := Config{Client: s.client, Prefix: s.prefix, LeaseDuration: 300 * time.Millisecond}
	for _, c := range change {
		c(&config)
	}
	i, err := New(config, nil)
	require.NoError(s, err)
	return i
}

func unchanged(*Config) {}

// key is a key of the inbox.
func (s scene) key(name string) string { return "{" + s.prefix + ":inbox}:" + name }

// keyOf is a key of topic t.
func (s scene) keyOf(partition int, kind script.Kind) string {
	return s.inbox().store.Topic("t").Partition(partition).Key(kind, "")
}

// add adds an entry with an id of Redis's.
func (s scene) add(fields ...string) (id string) { return s.addAs("*", fields...) }

func (s scene) addAs(id string, fields ...string) string {
	s.Helper()
	id, err := s.client.XAdd(s.Context(), &redis.XAddArgs{Stream: s.key("entries"), ID: id, Values: fields}).Result()
	require.NoError(s, err)
	return id
}

// put adds an entry for topic t.
func (s scene) put(payload string, more ...string) (id string) {
	s.Helper()
	return s.add(append([]string{"topic", "t", "payload", payload}, more...)...)
}

// next is the batch that a process has read whose lease is over.
func (s scene) next(i *Inbox) intake.Batch {
	s.Helper()
	b, err := i.intake.Next(s.Context(), intake.Reader{Name: "dies", Lease: 0, Keep: 1, MaxBytes: 1 << 20}, 0)
	require.NoError(s, err)
	require.NotEmpty(s, b.Entries)
	return b
}

// run runs an inbox until the test ends, or stop is called.
func (s scene) run(i *Inbox) (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		assert.NoError(s, i.Run(ctx))
	}()
	stop = func() {
		cancel()
		<-ended
	}
	s.Cleanup(stop)
	return stop
}

// empties runs an inbox until it is empty.
func (s scene) empties(i *Inbox) {
	s.Helper()
	defer s.run(i)()
	s.emptied()
}

func (s scene) emptied() {
	s.Helper()
	require.Eventually(s, func() bool { return s.waiting() == 0 }, time.Minute, 5*time.Millisecond)
}

// drained waits until the inbox is empty, and returns what was rejected.
func (s scene) drained(i *Inbox) []Rejection {
	s.Helper()
	s.emptied()
	rejected, err := i.Rejected(s.Context(), 100)
	require.NoError(s, err)
	return rejected
}

func (s scene) waiting() int64  { return s.client.XLen(s.Context(), s.key("entries")).Val() }
func (s scene) rejected() int64 { return s.client.XLen(s.Context(), s.key("rejected")).Val() }

// scheduled are the messages of topic t in a partition.
func (s scene) scheduled(partition int) []redis.Z {
	return s.client.ZRangeWithScores(s.Context(), s.keyOf(partition, script.Scheduled), 0, -1).Val()
}

func (s scene) stored() (n int64) {
	for p := range 4 {
		n += int64(len(s.scheduled(p)))
	}
	return n
}

// ack removes all messages, as if they were acked.
func (s scene) ack() {
	for p := range 4 {
		require.NoError(s, s.client.Del(s.Context(), s.keyOf(p, script.Scheduled), s.keyOf(p, script.Messages)).Err())
	}
}

// forget removes the record of what was stored in a partition.
func (s scene) forget(partition int) {
	require.NoError(s, s.client.Del(s.Context(), s.keyOf(partition, script.Publishers)).Err())
}

func (s scene) subscribe(topic string) <-chan *message.Message {
	s.Helper()
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: s.client, Prefix: s.prefix, MaxInFlight: 100}, nil)
	require.NoError(s, err)
	s.Cleanup(func() { assert.NoError(s, subscriber.Close()) })
	messages, err := subscriber.Subscribe(context.Background(), topic)
	require.NoError(s, err)
	return messages
}

// take returns the next message.
func (s scene) take(messages <-chan *message.Message) *message.Message {
	s.Helper()
	select {
	case msg := <-messages:
		return msg
	case <-time.After(time.Minute):
		require.FailNow(s, "no message has come")
		return nil
	}
}

// receive acks the next message.
func (s scene) receive(messages <-chan *message.Message) *message.Message {
	s.Helper()
	msg := s.take(messages)
	msg.Ack()
	return msg
}
