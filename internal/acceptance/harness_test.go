package acceptance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

// soon is how long tests wait for what should happen at once.
const soon = 15 * time.Second

// bench is a topic of a test's own and what works on it.
type bench struct {
	t      *testing.T
	client redis.UniversalClient
	topic  string
	logs   *logs
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchOn(t, redistest.Shared(t))
}

func newBenchOn(t *testing.T, server *redistest.Server) *bench {
	t.Helper()
	return newBenchWith(t, server.Client(t))
}

func newBenchWith(t *testing.T, client redis.UniversalClient) *bench {
	t.Helper()
	return &bench{t: t, client: client, topic: t.Name() + "/" + watermill.NewShortUUID(), logs: &logs{}}
}

func (b *bench) publisher(change ...func(*redisdelay.PublisherConfig)) *redisdelay.Publisher {
	b.t.Helper()
	config := redisdelay.PublisherConfig{Client: b.client}
	for _, c := range change {
		c(&config)
	}
	publisher, err := redisdelay.NewPublisher(config, b.logs)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, publisher.Close()) })
	return publisher
}

func (b *bench) subscriber(change ...func(*redisdelay.SubscriberConfig)) *redisdelay.Subscriber {
	b.t.Helper()
	config := redisdelay.SubscriberConfig{Client: b.client, CloseTimeout: time.Second}
	for _, c := range change {
		c(&config)
	}
	subscriber, err := redisdelay.NewSubscriber(config, b.logs)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = subscriber.Close() })
	return subscriber
}

// subscribe returns a running subscription.
func (b *bench) subscribe(change ...func(*redisdelay.SubscriberConfig)) <-chan *message.Message {
	b.t.Helper()
	messages, err := b.subscriber(change...).Subscribe(context.Background(), b.topic)
	require.NoError(b.t, err)
	return messages
}

// publish publishes new messages with these UUIDs.
func (b *bench) publish(uuids ...string) {
	b.t.Helper()
	var list []*message.Message
	for _, uuid := range uuids {
		list = append(list, message.NewMessage(uuid, []byte("payload of "+uuid)))
	}
	require.NoError(b.t, b.publisher().Publish(b.topic, list...))
}

// next receives the next message.
func (b *bench) next(messages <-chan *message.Message) *message.Message {
	b.t.Helper()
	select {
	case msg, ok := <-messages:
		require.True(b.t, ok, "the channel is closed")
		return msg
	case <-time.After(soon):
		require.Fail(b.t, "no message")
		return nil
	}
}

// expect receives and acks the next messages, which must have these UUIDs.
func (b *bench) expect(messages <-chan *message.Message, uuids ...string) {
	b.t.Helper()
	for _, uuid := range uuids {
		msg := b.next(messages)
		require.Equal(b.t, uuid, msg.UUID)
		require.True(b.t, msg.Ack())
	}
}

// idle asserts that nothing is delivered for a moment.
func (b *bench) idle(messages <-chan *message.Message) {
	b.t.Helper()
	select {
	case msg, ok := <-messages:
		if ok {
			require.Fail(b.t, "unexpected message", "%s, attempt %d", msg.UUID, attempt(b.t, msg))
		}
	case <-time.After(300 * time.Millisecond):
	}
}

// tag is the hash tag of the topic's partitions, up to their number.
func (b *bench) tag() string {
	return "{redisdelay:" + strings.NewReplacer("%", "%25", "}", "%7D", ":", "%3A").Replace(b.topic) + ":"
}

// key is the name of a key of the first partition.
func (b *bench) key(kind string) string { return b.tag() + "0}:" + kind }

// allKeys lists what the topic has in Redis, in all partitions.
func (b *bench) allKeys() (keys []string) {
	b.t.Helper()
	var mu sync.Mutex
	list := func(ctx context.Context, client *redis.Client) error {
		some, err := client.Keys(ctx, b.tag()+"*").Result()
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, some...)
		return err
	}
	if cluster, ok := b.client.(*redis.ClusterClient); ok {
		require.NoError(b.t, cluster.ForEachMaster(context.Background(), list))
	} else {
		require.NoError(b.t, list(context.Background(), b.client.(*redis.Client)))
	}
	return keys
}

// keys lists the kinds of keys that the topic has in Redis, but for the bookkeeping
// that expires.
func (b *bench) keys() []string {
	b.t.Helper()
	kinds := []string{}
	for _, key := range b.allKeys() {
		_, kind, _ := strings.Cut(key, "}:")
		if kind != "publishers" && !strings.HasPrefix(kind, "claims:") && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// partitionsInUse lists the hash tags of partitions that messages were published to.
func (b *bench) partitionsInUse() (tags []string) {
	b.t.Helper()
	for _, key := range b.allKeys() {
		if tag, found := strings.CutSuffix(key, ":publishers"); found {
			tags = append(tags, tag)
		}
	}
	return tags
}

// settled waits until nothing of the topic is left in Redis but its groups and the
// number of its partitions.
func (b *bench) settled() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		return !slices.ContainsFunc(b.keys(), func(kind string) bool { return kind != "groups" && kind != "partitions" })
	}, soon, 5*time.Millisecond, "left in Redis: %v", b.keys())
}

func (b *bench) redisTime() time.Time {
	b.t.Helper()
	now, err := b.client.Time(context.Background()).Result()
	require.NoError(b.t, err)
	return now
}

func attempt(t *testing.T, msg *message.Message) int {
	t.Helper()
	d, ok := redisdelay.DeliveryFromContext(msg.Context())
	require.True(t, ok)
	return d.Attempt
}

// token is how often the group was given the message.
func token(t *testing.T, msg *message.Message) int {
	t.Helper()
	d, ok := redisdelay.DeliveryFromContext(msg.Context())
	require.True(t, ok)
	return int(d.Token)
}

func closed(t *testing.T, messages <-chan *message.Message) {
	t.Helper()
	select {
	case msg, ok := <-messages:
		require.False(t, ok, "unexpected message %v", msg)
	case <-time.After(soon):
		require.Fail(t, "the channel is not closed")
	}
}

func ended(t *testing.T, ctx context.Context, cause error) { //nolint:revive // t first, as in testify
	t.Helper()
	select {
	case <-ctx.Done():
		require.ErrorIs(t, context.Cause(ctx), cause)
	case <-time.After(soon):
		require.Fail(t, "the context has not ended")
	}
}

func delayed(uuid string, d delay.Delay) *message.Message {
	msg := message.NewMessage(uuid, nil)
	delay.Message(msg, d)
	return msg
}

func withKey(uuid, key string, d delay.Delay) *message.Message {
	msg := delayed(uuid, d)
	redisdelay.SetKey(msg, key)
	return msg
}

type subConfig = redisdelay.SubscriberConfig

func dueAt(t *testing.T, msg *message.Message) time.Time {
	t.Helper()
	d, ok := redisdelay.DeliveryFromContext(msg.Context())
	require.True(t, ok)
	return d.DueAt
}

// logs keeps what is logged at levels that a user would see.
type logs struct {
	mu    sync.Mutex
	lines []string
}

var errNone = errors.New("none")

func (l *logs) Error(msg string, err error, fields watermill.LogFields) {
	if err == nil {
		err = errNone
	}
	if warning, about := strings.CutPrefix(msg, "Warning: "); about { // most tests have a Redis that keeps nothing
		l.add(fmt.Sprintf("warning: %s: %v %v", warning, err, fields))
		return
	}
	l.add(fmt.Sprintf("error: %s: %v %v", msg, err, fields))
}

func (l *logs) Info(msg string, fields watermill.LogFields) {
	l.add(fmt.Sprintf("info: %s %v", msg, fields))
}
func (l *logs) Debug(string, watermill.LogFields)                {}
func (l *logs) Trace(string, watermill.LogFields)                {}
func (l *logs) With(watermill.LogFields) watermill.LoggerAdapter { return l }

func (l *logs) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *logs) containing(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
