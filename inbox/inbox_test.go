package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/inbox"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// scene is an inbox of a test's own.
type scene struct {
	client redis.UniversalClient
	prefix string
}

func newScene(t *testing.T) scene {
	t.Helper()
	return scene{redistest.Client(t), "test-" + watermill.NewShortUUID()}
}

func (s scene) key(name string) string { return "{" + s.prefix + ":inbox}:" + name }

func (s scene) add(t *testing.T, fields ...string) {
	t.Helper()
	require.NoError(t, s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.key("entries"), Values: fields}).Err())
}

func (s scene) inbox(t *testing.T, change ...func(*inbox.Config)) *inbox.Inbox {
	t.Helper()
	config := inbox.Config{Client: s.client, Prefix: s.prefix, TakeOverAfter: 300 * time.Millisecond}
	for _, c := range change {
		c(&config)
	}
	i, err := inbox.New(config, nil)
	require.NoError(t, err)
	return i
}

// run runs an inbox until the test ends.
func run(t *testing.T, i *inbox.Inbox) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
}

func (s scene) subscribe(t *testing.T, topic string) <-chan *message.Message {
	t.Helper()
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: s.client, Prefix: s.prefix, MaxInFlight: 100}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, subscriber.Close()) })
	messages, err := subscriber.Subscribe(context.Background(), topic)
	require.NoError(t, err)
	return messages
}

// receive acks the next message.
func receive(t *testing.T, messages <-chan *message.Message) *message.Message {
	t.Helper()
	msg := next(t, messages)
	msg.Ack()
	return msg
}

func next(t *testing.T, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg := <-messages:
		return msg
	case <-time.After(time.Minute):
		require.FailNow(t, "no message has come")
		return nil
	}
}

// settled waits until the inbox is empty, and returns what was refused.
func (s scene) settled(t *testing.T, i *inbox.Inbox) []inbox.Refusal {
	t.Helper()
	require.Eventually(t, func() bool {
		status, err := i.Status(t.Context())
		require.NoError(t, err)
		return status.Waiting == 0
	}, 10*time.Second, 5*time.Millisecond)
	refused, err := i.Refused(t.Context(), 100)
	require.NoError(t, err)
	return refused
}

func TestAnEntryBecomesAMessage(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	messages := s.subscribe(t, "orders")
	run(t, s.inbox(t))
	s.add(t, "topic", "orders", "payload", "\x00close", "uuid", "u-1", "meta.source", "shop", "key", "order-42")
	msg := receive(t, messages)
	assert.Equal(t, "u-1", msg.UUID)
	assert.Equal(t, "\x00close", string(msg.Payload))
	assert.Equal(t, "shop", msg.Metadata.Get("source"))
}

func TestADelayCountsFromWhenRedisTookTheEntry(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	now, err := s.client.Time(t.Context()).Result()
	require.NoError(t, err)
	written, due := now.Add(-time.Hour).UnixMilli(), now.Add(3*time.Hour).UnixMilli()
	for n, field := range [][]string{{"delay_ms", fmt.Sprint(2 * time.Hour.Milliseconds())}, {"due_ms", fmt.Sprint(due)}} {
		require.NoError(t, s.client.XAdd(t.Context(), &redis.XAddArgs{
			Stream: s.key("entries"), ID: fmt.Sprintf("%d-%d", written, n+1), Values: append(field, "topic", "orders"),
		}).Err())
	}
	i := s.inbox(t)
	run(t, i)
	assert.Empty(t, s.settled(t, i))
	dues, err := s.client.ZRangeWithScores(t.Context(), "{"+s.prefix+":orders:0}:scheduled", 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, dues, 2)
	for n, want := range []int64{now.Add(time.Hour).UnixMilli(), due} {
		assert.GreaterOrEqual(t, int64(dues[n].Score), want, "never early")
		assert.Less(t, int64(dues[n].Score), want+60_000)
	}
}

// TestADueTimeMayBeFarAhead, up to the year 2286.
func TestADueTimeMayBeFarAhead(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.add(t, "topic", "orders", "due_ms", "9999999999999")
	i := s.inbox(t)
	run(t, i)
	assert.Empty(t, s.settled(t, i))
	dues, err := s.client.ZRangeWithScores(t.Context(), "{"+s.prefix+":orders:0}:scheduled", 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, dues, 1)
	assert.Equal(t, 9999999999999.0, dues[0].Score)
}

// TestAnyIDOfAnEntryIsRead, and Redis takes others after it.
func TestAnyIDOfAnEntryIsRead(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{
		"the largest": "18446744073709551615-18446744073709551615", "microseconds": "1796018400000000-0", "a counter": "7-0", "the least": "0-1",
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			messages := s.subscribe(t, "orders")
			require.NoError(t, s.client.XAdd(t.Context(), &redis.XAddArgs{
				Stream: s.key("entries"), ID: id, Values: []string{"topic", "orders", "payload", "first"},
			}).Err())
			i := s.inbox(t)
			status, err := i.Status(t.Context())
			require.NoError(t, err)
			assert.Equal(t, inbox.Status{Waiting: 1}, status, "nothing tells for how long it has waited")
			run(t, i)
			assert.Equal(t, "first", string(receive(t, messages).Payload))
			assert.Empty(t, s.settled(t, i))
			s.add(t, "topic", "orders", "payload", "second")
			assert.Equal(t, "second", string(receive(t, messages).Payload))
		})
	}
}

func TestKeysAreCancelledRescheduledAndRefusedInTheOrderOfTheEntries(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	messages := s.subscribe(t, "orders")
	s.add(t, "topic", "orders", "key", "a", "payload", "a1", "delay_ms", "60000")
	s.add(t, "topic", "orders", "key", "a", "payload", "a2")
	s.add(t, "topic", "orders", "key", "b", "payload", "b1", "delay_ms", "60000")
	s.add(t, "topic", "orders", "key", "a", "op", "cancel")
	s.add(t, "topic", "orders", "key", "a", "op", "cancel")
	s.add(t, "topic", "orders", "key", "a", "payload", "a3")
	s.add(t, "topic", "orders", "key", "b", "op", "reschedule", "delay_ms", "1")
	i := s.inbox(t)
	run(t, i)
	got := []string{string(receive(t, messages).Payload), string(receive(t, messages).Payload)}
	assert.ElementsMatch(t, []string{"a3", "b1"}, got)
	refused := s.settled(t, i)
	require.Len(t, refused, 1)
	assert.Equal(t, redisdelay.ErrDuplicateMessage.Error(), refused[0].Reason)
	assert.Equal(t, "a2", refused[0].Fields["payload"])
}

func TestWhatCannotBeStoredIsRefusedAndStopsNoOther(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	messages := s.subscribe(t, "orders")
	bad := map[string][]string{
		`field "topic" is missing`: {"payload", "x"},
		`field "topics"`:           {"topics", "orders"},
		`field "delay_ms"`:         {"topic", "orders", "delay_ms", "soon"},
		`field "expires_ms"`:       {"topic", "orders", "expires_ms", "1796018400"},
		`"1796018400", want`:       {"topic", "orders", "due_ms", "1796018400"},
		`"1796018400000000", want`: {"topic", "orders", "due_ms", "1796018400000000"},
		`field "op"`:               {"topic", "orders", "op", "drop"},
		`field "key" is missing`:   {"topic", "orders", "op", "cancel"},
		`field "key": has 0`:       {"topic", "orders", "key", ""},
		`is there twice`:           {"topic", "orders", "topic", "orders"},
		`two due times`:            {"topic", "orders", "delay_ms", "1", "due_ms", "1796018400000"},
		`only the library writes`:  {"topic", "orders", "meta._redisdelay_x", "1"},
		`too large`:                {"topic", "orders", "payload", string(make([]byte, 2000))},
		`:broken:0}:messages`:      {"topic", "broken"},
		`is missing`:               {"topic", "orders", "op", "reschedule", "key", "k"},
	}
	require.NoError(t, s.client.Set(t.Context(), "{"+s.prefix+":broken:0}:messages", "x", 0).Err())
	for _, fields := range bad {
		s.add(t, fields...)
	}
	s.add(t, "topic", "orders", "payload", "good")
	i := s.inbox(t, func(c *inbox.Config) { c.MaxMessageBytes = 1000 })
	run(t, i)
	assert.Equal(t, "good", string(receive(t, messages).Payload))
	refused := s.settled(t, i)
	require.Len(t, refused, len(bad))
	for reason := range bad {
		told := slices.ContainsFunc(refused, func(r inbox.Refusal) bool { return r.ID != "" && strings.Contains(r.Reason, reason) })
		assert.True(t, told, "%s is not among %v", reason, refused)
	}
}

func TestOrderAndExpiration(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	messages := s.subscribe(t, "orders")
	for i := range 5 {
		s.add(t, "topic", "orders", "ordering_key", "customer", "payload", fmt.Sprint(i))
	}
	s.add(t, "topic", "orders", "payload", "stale", "expires_ms", "1000000000000")
	s.add(t, "topic", "orders", "payload", "without a key")
	i := s.inbox(t)
	run(t, i)
	first := next(t, messages)
	got := []string{string(first.Payload), string(receive(t, messages).Payload)}
	assert.Equal(t, []string{"0", "without a key"}, got, "the others of the customer wait for the first, and the stale one never comes")
	first.Ack()
	for i := 1; i < 5; i++ {
		assert.Equal(t, fmt.Sprint(i), string(receive(t, messages).Payload))
	}
	assert.Empty(t, s.settled(t, i))
	assert.Equal(t, []string{"expired"}, s.client.HVals(t.Context(), "{"+s.prefix+":orders:0}:reasons:default").Val())
}

// TestAHandlerSeesTheKeysAndTheExpirationOfAnEntry, and what it publishes again keeps its place in line.
func TestAHandlerSeesTheKeysAndTheExpirationOfAnEntry(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	messages, others := s.subscribe(t, "orders"), s.subscribe(t, "others")
	run(t, s.inbox(t))
	s.add(t, "topic", "orders", "key", "order-42", "ordering_key", "customer", "expires_ms", "4102444800500")
	msg := receive(t, messages)
	assert.Equal(t, message.Metadata{
		redisdelay.KeyMetadata: "order-42", redisdelay.OrderingKeyMetadata: "customer", redisdelay.ExpirationMetadata: "2100-01-01T00:00:00.5Z",
	}, msg.Metadata)
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: s.client, Prefix: s.prefix}, nil)
	require.NoError(t, err)
	defer publisher.Close() //nolint:errcheck // a test of Close is elsewhere
	again := message.NewMessage(msg.UUID, nil)
	again.Metadata = msg.Metadata
	require.NoError(t, publisher.Publish("others", again))
	delivery, _ := redisdelay.DeliveryFromContext(receive(t, others).Context())
	assert.Contains(t, delivery.ID, "=8,customer")
}

// TestARefusedEntryThatIsAddedAgainHasItsNewReason, although somebody has copied all its fields.
func TestARefusedEntryThatIsAddedAgainHasItsNewReason(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.add(t, "topics", "orders", "_entry", "1-1", "_reason", "old")
	i := s.inbox(t)
	run(t, i)
	refused := s.settled(t, i)
	require.Len(t, refused, 1)
	assert.NotEqual(t, "1-1", refused[0].ID)
	assert.Contains(t, refused[0].Reason, `field "topics"`)
	assert.Equal(t, map[string]string{"topics": "orders"}, refused[0].Fields)
}

// TestProcessesThatDieDoubleNothing ends processes at random moments, also between storing a batch and saying so: calls to
// Redis fail then, or their replies are lost.
func TestProcessesThatDieDoubleNothing(t *testing.T) {
	t.Parallel()
	const n, topics = 5000, 3
	s := newScene(t)
	var mu sync.Mutex
	got := map[string]int{}
	var consuming sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer consuming.Wait()
	defer stop()
	for i := range topics {
		messages := s.subscribe(t, fmt.Sprint("orders-", i))
		consuming.Go(func() {
			for {
				select {
				case msg := <-messages:
					mu.Lock()
					got[string(msg.Payload)]++
					mu.Unlock()
					msg.Ack()
				case <-ctx.Done():
					return
				}
			}
		})
	}
	consuming.Go(func() {
		for from := 0; from < n; from += 100 {
			_, err := s.client.Pipelined(context.Background(), func(p redis.Pipeliner) error {
				for i := from; i < from+100; i++ {
					p.XAdd(context.Background(), &redis.XAddArgs{Stream: s.key("entries"), Values: []string{
						"topic", fmt.Sprint("orders-", i%topics), "payload", fmt.Sprint(i),
					}})
				}
				return nil
			})
			assert.NoError(t, err)
		}
	})
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(got)
	}
	deadline := time.Now().Add(90 * time.Second)
	for deaths := 0; deaths < 12 || count() < n; deaths++ {
		require.True(t, time.Now().Before(deadline), "%d of %d have come", count(), n)
		s.runUntilItDies(t, deaths < 12)
	}
	mu.Lock()
	defer mu.Unlock()
	for payload, times := range got {
		assert.Equal(t, 1, times, payload)
	}
	assert.Len(t, got, n)
}

// runUntilItDies runs two processes on connections of their own, which fail at some call.
func (s scene) runUntilItDies(t *testing.T, dies bool) {
	t.Helper()
	var runs sync.WaitGroup
	for range 2 {
		client := redis.NewClient(redistest.Client(t).Options())
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		if dies {
			client.AddHook(&mortal{left: rand.IntN(40), stop: stop})
		}
		i, err := inbox.New(inbox.Config{Client: client, Prefix: s.prefix, TakeOverAfter: 100 * time.Millisecond}, nil)
		require.NoError(t, err)
		runs.Go(func() {
			defer stop()
			assert.NoError(t, i.Run(ctx))
			assert.NoError(t, client.Close())
		})
	}
	runs.Wait()
}

var errDead = errors.New("the process is dead")

// mortal ends a process with one of its calls: before it, or after it, so that the reply is lost.
type mortal struct {
	mu   sync.Mutex
	left int // guarded by mu; calls
	stop context.CancelFunc
}

func (m *mortal) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *mortal) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return m.call(func() error { return next(ctx, cmd) })
	}
}

func (m *mortal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return m.call(func() error { return next(ctx, cmds) })
	}
}

func (m *mortal) call(do func() error) error {
	m.mu.Lock()
	m.left--
	left := m.left
	m.mu.Unlock()
	switch {
	case left > 0:
		return do()
	case left == 0 && rand.IntN(2) == 0:
		_ = do()
	}
	m.stop()
	return errDead
}

func TestAnInboxOnAClusterStoresIntoTopicsOfAllNodes(t *testing.T) {
	const topics, each = 12, 5
	cluster := redistest.NewCluster(t)
	s := scene{cluster.Client(t), "test-" + watermill.NewShortUUID()}
	for n := range topics * each {
		s.add(t, "topic", fmt.Sprint("orders-", n%topics), "payload", fmt.Sprint(n))
	}
	i := s.inbox(t, func(c *inbox.Config) { c.Partitions = 3 })
	run(t, i)
	assert.Empty(t, s.settled(t, i))
	got := map[string]int{}
	for n := range topics {
		messages := s.subscribe(t, fmt.Sprint("orders-", n))
		for range each {
			got[string(receive(t, messages).Payload)]++
		}
	}
	assert.Len(t, got, topics*each)
}

// throttled fails a reply that is too large for the network.
type throttled struct{ redistest.Hook }

func (throttled) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); err != nil {
			return err
		}
		if call, is := cmd.(*redis.Cmd); is && len(fmt.Sprint(call.Val())) > 8<<20 {
			call.SetErr(os.ErrDeadlineExceeded)
		}
		return cmd.Err()
	}
}

func TestAnEntryOfAnySizeStopsNoOther(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	messages := s.subscribe(t, "orders")
	s.add(t, "topic", "orders", "payload", string(make([]byte, 32<<20)))
	s.add(t, "topic", "orders", "payload", "good")
	client := redis.NewClient(redistest.Client(t).Options())
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	client.AddHook(throttled{})
	i := s.inbox(t, func(c *inbox.Config) { c.Client, c.MaxMessageBytes = client, 1000 })
	run(t, i)
	assert.Equal(t, "good", string(receive(t, messages).Payload))
	refused := s.settled(t, s.inbox(t))
	require.Len(t, refused, 1)
	assert.Contains(t, refused[0].Reason, redisdelay.ErrMessageTooLarge.Error())
	assert.Equal(t, fmt.Sprint(32<<20+len("topicorderspayload")), refused[0].Fields["_bytes"])
}

func TestTheReasonOfARefusedEntryIsBounded(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	long := strings.Repeat("\x00", 1<<20)
	s.add(t, "topic", "orders", "delay_ms", long)
	s.add(t, "topic", "orders", "op", long)
	s.add(t, "topic", "orders", long, "")
	s.add(t, "topic", "broken "+strings.Repeat("é", 1000))
	broken := "{" + s.prefix + ":broken " + strings.Repeat("é", 1000) + ":0}:messages"
	require.NoError(t, s.client.Set(t.Context(), broken, "x", 0).Err())
	var mu sync.Mutex
	longest := 0 // guarded by mu; error that an observer is told
	i := s.inbox(t, func(c *inbox.Config) {
		c.Observer.Published = func(e observe.Published) {
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, len(fmt.Sprint(e.Err)))
		}
	})
	run(t, i)
	refused := s.settled(t, i)
	require.Len(t, refused, 4)
	for _, r := range refused {
		assert.LessOrEqual(t, len(r.Reason), redisdelay.MaxReasonBytes)
		assert.True(t, utf8.ValidString(r.Reason))
	}
	mu.Lock()
	defer mu.Unlock()
	assert.Less(t, longest, 10_000)
}
