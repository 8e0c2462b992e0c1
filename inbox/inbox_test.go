package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// TestADelayStartsWhenRedisStoresTheEntry. A due time may be in the year 2286.
func TestADelayStartsWhenRedisStoresTheEntry(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	now, err := s.client.Time(t.Context()).Result()
	require.NoError(t, err)
	written, due := now.Add(-time.Hour).UnixMilli(), now.Add(3*time.Hour).UnixMilli()
	for n, field := range [][]string{
		{"delay_ms", fmt.Sprint(2 * time.Hour.Milliseconds())}, {"due_ms", fmt.Sprint(due)}, {"due_ms", "9999999999999"},
	} {
		s.addAs(fmt.Sprintf("%d-%d", written, n+1), append(field, "topic", "t")...)
	}
	i := s.inbox()
	s.empties(i)
	assert.Empty(t, s.drained(i))
	dues := s.scheduled(0)
	require.Len(t, dues, 3)
	for n, want := range []int64{now.Add(time.Hour).UnixMilli(), due, 9999999999999} {
		assert.GreaterOrEqual(t, int64(dues[n].Score), want, "never early")
		assert.Less(t, int64(dues[n].Score), want+60_000)
	}
}

// TestAnyEntryIDIsAccepted, and Redis accepts more entries after it.
func TestAnyEntryIDIsAccepted(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{"the largest": "18446744073709551615-18446744073709551615", "the least": "0-1"} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			messages := s.subscribe("orders")
			s.addAs(id, "topic", "orders", "payload", "first")
			i := s.inbox()
			s.run(i)
			assert.Equal(t, "first", string(s.receive(messages).Payload))
			assert.Empty(t, s.drained(i))
			s.add("topic", "orders", "payload", "second")
			assert.Equal(t, "second", string(s.receive(messages).Payload))
		})
	}
}

func TestEntriesOfAKeyAreAppliedInOrder(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	messages := s.subscribe("orders")
	s.add("topic", "orders", "key", "a", "payload", "a1", "delay_ms", "60000")
	s.add("topic", "orders", "key", "a", "payload", "a2")
	s.add("topic", "orders", "key", "b", "payload", "b1", "delay_ms", "60000")
	s.add("topic", "orders", "key", "a", "op", "cancel")
	s.add("topic", "orders", "key", "a", "op", "cancel")
	s.add("topic", "orders", "key", "a", "payload", "a3")
	s.add("topic", "orders", "key", "b", "op", "reschedule", "delay_ms", "1")
	i := s.inbox()
	s.run(i)
	got := []string{string(s.receive(messages).Payload), string(s.receive(messages).Payload)}
	assert.ElementsMatch(t, []string{"a3", "b1"}, got)
	rejected := s.drained(i)
	require.Len(t, rejected, 1)
	assert.Equal(t, redisdelay.ErrDuplicateMessage.Error(), rejected[0].Reason)
	assert.Equal(t, "a2", rejected[0].Fields["payload"])
}

func TestInvalidEntriesAreRefusedWithoutBlockingOthers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	messages := s.subscribe("orders")
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
		s.add(fields...)
	}
	s.add("topic", "orders", "payload", "good")
	i := s.inbox(func(c *Config) { c.MaxMessageBytes = 1000 })
	s.run(i)
	assert.Equal(t, "good", string(s.receive(messages).Payload))
	rejected := s.drained(i)
	require.Len(t, rejected, len(bad))
	for reason := range bad {
		found := slices.ContainsFunc(rejected, func(r Rejection) bool { return r.ID != "" && strings.Contains(r.Reason, reason) })
		assert.True(t, found, "%s is not among %v", reason, rejected)
	}
}

func TestEntriesMaySetAnOrderingKeyAndAnExpiration(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	messages := s.subscribe("orders")
	for i := range 5 {
		s.add("topic", "orders", "ordering_key", "customer", "payload", fmt.Sprint(i))
	}
	s.add("topic", "orders", "payload", "stale", "expires_ms", "1000000000000")
	s.add("topic", "orders", "payload", "without a key")
	i := s.inbox()
	s.run(i)
	first := s.take(messages)
	got := []string{string(first.Payload), string(s.receive(messages).Payload)}
	assert.Equal(t, []string{"0", "without a key"}, got, "the others of the customer wait for the first, and the stale one never comes")
	first.Ack()
	for i := 1; i < 5; i++ {
		assert.Equal(t, fmt.Sprint(i), string(s.receive(messages).Payload))
	}
	assert.Empty(t, s.drained(i))
	assert.Equal(t, []string{"expired"}, s.client.HVals(t.Context(), "{"+s.prefix+":orders:0}:reasons:default").Val())
}

// TestAHandlerSeesAllFieldsOfAnEntry, and what it publishes again keeps its place in line.
func TestAHandlerSeesAllFieldsOfAnEntry(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	messages, others := s.subscribe("orders"), s.subscribe("others")
	s.run(s.inbox())
	s.add("topic", "orders", "payload", "\x00close", "uuid", "u-1", "meta.source", "shop",
		"key", "order-42", "ordering_key", "customer", "expires_ms", "4102444800500")
	msg := s.receive(messages)
	assert.Equal(t, []string{"u-1", "\x00close"}, []string{msg.UUID, string(msg.Payload)})
	assert.Equal(t, message.Metadata{
		"source": "shop", redisdelay.KeyMetadata: "order-42", redisdelay.OrderingKeyMetadata: "customer",
		redisdelay.ExpirationMetadata: "2100-01-01T00:00:00.5Z",
	}, msg.Metadata)
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: s.client, Prefix: s.prefix}, nil)
	require.NoError(t, err)
	defer publisher.Close() //nolint:errcheck // a test of Close is elsewhere
	again := message.NewMessage(msg.UUID, nil)
	again.Metadata = msg.Metadata
	require.NoError(t, publisher.Publish("others", again))
	delivery, _ := redisdelay.DeliveryFromContext(s.receive(others).Context())
	assert.Contains(t, delivery.ID, "=8,customer")
}

// TestARefusedEntryThatIsAddedAgainHasItsNewReason, although all its fields were copied.
func TestARefusedEntryThatIsAddedAgainHasItsNewReason(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.add("topics", "orders", "_entry", "1-1", "_reason", "old")
	i := s.inbox()
	s.run(i)
	rejected := s.drained(i)
	require.Len(t, rejected, 1)
	assert.NotEqual(t, "1-1", rejected[0].ID)
	assert.Contains(t, rejected[0].Reason, `field "topics"`)
	assert.Equal(t, map[string]string{"topics": "orders"}, rejected[0].Fields)
}

// TestCrashingProcessesStoreNoMessageTwice: processes end at random moments, also between storing a batch and reporting it. Their calls
// to Redis fail then, or their replies are lost.
func TestCrashingProcessesStoreNoMessageTwice(t *testing.T) {
	t.Parallel()
	const n, topics, deaths = 2000, 3, 6
	s := newScene(t)
	got := make(chan string, n)
	var consuming sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer consuming.Wait()
	defer stop()
	for i := range topics {
		messages := s.subscribe(fmt.Sprint("orders-", i))
		consuming.Go(func() {
			for {
				select {
				case msg := <-messages:
					got <- string(msg.Payload)
					msg.Ack()
				case <-ctx.Done():
					return
				}
			}
		})
	}
	consuming.Go(func() {
		for i := range n {
			s.client.XAdd(context.Background(), &redis.XAddArgs{Stream: s.key("entries"), Values: []string{
				"topic", fmt.Sprint("orders-", i%topics), "payload", fmt.Sprint(i),
			}})
		}
	})
	times := map[string]int{}
	for round := 0; round < deaths || len(times) < n; round++ {
		require.Less(t, round, 100, "%d of %d have come", len(times), n)
		s.runUntilItDies(round < deaths)
		for len(got) > 0 {
			times[<-got]++
		}
	}
	for payload, count := range times {
		assert.Equal(t, 1, count, payload)
	}
}

// runUntilItDies runs two processes on connections of their own, which fail at some call.
func (s scene) runUntilItDies(dies bool) {
	s.Helper()
	var runs sync.WaitGroup
	for range 2 {
		client := redis.NewClient(redistest.Client(s.T).Options())
		ctx, stop := context.WithTimeout(s.Context(), time.Second)
		if dies {
			client.AddHook(&mortal{left: rand.IntN(40), stop: stop})
		}
		i := s.inbox(func(c *Config) { c.Client, c.LeaseDuration = client, 100*time.Millisecond })
		runs.Go(func() {
			defer stop()
			assert.NoError(s, i.Run(ctx))
			assert.NoError(s, client.Close())
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
	s := newSceneWith(t, redistest.SharedCluster(t).Client(t))
	for n := range topics * each {
		s.add("topic", fmt.Sprint("orders-", n%topics), "payload", fmt.Sprint(n))
	}
	i := s.inbox(func(c *Config) { c.Partitions = 3 })
	s.run(i)
	assert.Empty(t, s.drained(i))
	got := map[string]int{}
	for n := range topics {
		messages := s.subscribe(fmt.Sprint("orders-", n))
		for range each {
			got[string(s.receive(messages).Payload)]++
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

func TestAHugeEntryDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	messages := s.subscribe("orders")
	s.add("topic", "orders", "payload", string(make([]byte, 32<<20)))
	s.add("topic", "orders", "payload", "good")
	client := redis.NewClient(redistest.Client(t).Options())
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	client.AddHook(throttled{})
	i := s.inbox(func(c *Config) { c.Client, c.MaxMessageBytes = client, 1000 })
	s.run(i)
	assert.Equal(t, "good", string(s.receive(messages).Payload))
	rejected := s.drained(s.inbox())
	require.Len(t, rejected, 1)
	assert.Contains(t, rejected[0].Reason, redisdelay.ErrMessageTooLarge.Error())
	assert.Equal(t, fmt.Sprint(32<<20+len("topicorderspayload")), rejected[0].Fields["_bytes"])
}

func TestTheReasonOfARefusedEntryIsBounded(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	long := strings.Repeat("\x00", 1<<20)
	s.add("topic", "orders", "delay_ms", long)
	s.add("topic", "orders", "op", long)
	s.add("topic", "orders", long, "")
	s.add("topic", "broken "+strings.Repeat("é", 1000))
	broken := "{" + s.prefix + ":broken " + strings.Repeat("é", 1000) + ":0}:messages"
	require.NoError(t, s.client.Set(t.Context(), broken, "x", 0).Err())
	var mu sync.Mutex
	longest := 0 // guarded by mu; error that an observer is told
	i := s.inbox(func(c *Config) {
		c.Observer.Published = func(e observe.Published) {
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, len(fmt.Sprint(e.Err)))
		}
	})
	s.run(i)
	rejected := s.drained(i)
	require.Len(t, rejected, 4)
	for _, r := range rejected {
		assert.LessOrEqual(t, len(r.Reason), redisdelay.MaxReasonBytes)
		assert.True(t, utf8.ValidString(r.Reason))
	}
	mu.Lock()
	defer mu.Unlock()
	assert.Less(t, longest, 10_000)
}

// TestTheCommandsInTheDocsPublishAndCancel runs what the page types, on the prefix of a test.
func TestTheCommandsInTheDocsPublishAndCancel(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	text, err := os.ReadFile("../docs/use/inbox.md")
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?m)^\$ redis-cli (.*)$`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, lines, 2)
	i := s.inbox()
	s.run(i)
	for n, want := range []int64{1, 0} {
		var args []any
		for word := range strings.FieldsSeq(strings.ReplaceAll(lines[n][1], "redisdelay", s.prefix)) {
			args = append(args, strings.Trim(word, "'"))
		}
		require.NoError(t, s.client.Do(t.Context(), args...).Err())
		assert.Empty(t, s.drained(i))
		assert.Equal(t, want, s.client.ZCard(t.Context(), "{"+s.prefix+":orders:0}:scheduled").Val())
	}
}
