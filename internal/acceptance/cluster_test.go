package acceptance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

func newClusterBench(t *testing.T) *bench {
	t.Helper()
	return newBenchWith(t, redistest.SharedCluster(t).Client(t))
}

func partitions(n int) func(*redisdelay.PublisherConfig) {
	return func(c *redisdelay.PublisherConfig) { c.Partitions = n }
}

func byMetadata(_ string, msg *message.Message) string { return msg.Metadata.Get("order") }

func TestOrderOfAPartitionKey(t *testing.T) {
	b := newClusterBench(t)
	p := b.publisher(partitions(8), func(c *redisdelay.PublisherConfig) { c.PartitionKey = byMetadata })
	messages := b.subscribe()
	const keys, each = 20, 50
	var publishing sync.WaitGroup
	for key := range keys {
		publishing.Go(func() {
			for n := range each {
				msg := message.NewMessage(strconv.Itoa(n), nil)
				msg.Metadata.Set("order", strconv.Itoa(key))
				assert.NoError(t, p.Publish(b.topic, msg))
			}
		})
	}
	next := map[string]int{}
	for range keys * each {
		msg := b.next(messages)
		key := msg.Metadata.Get("order")
		require.Equal(t, strconv.Itoa(next[key]), msg.UUID, "messages of %s", key)
		next[key]++
		msg.Ack()
	}
	publishing.Wait()
	assert.Len(t, next, keys)
	b.settled()
}

// TestTwelvePartitionsShareTheMastersEvenly counts the scripts that each master runs.
func TestTwelvePartitionsShareTheMastersEvenly(t *testing.T) {
	b := newClusterBench(t)
	const count = 3000
	p := b.publisher(partitions(12))
	require.NoError(t, p.Publish(b.topic, message.NewMessage("first", nil)))
	messages := b.subscribe(func(c *subConfig) { c.MaxInFlight = 10 }) // to all partitions at once
	b.expect(messages, "first")
	before := b.scriptsByMaster()
	published := make(chan struct{})
	go func() {
		defer close(published)
		for n := range count {
			assert.NoError(t, p.Publish(b.topic, message.NewMessage(strconv.Itoa(n), nil)))
		}
	}()
	for range count {
		b.next(messages).Ack()
	}
	<-published
	b.settled()
	total, shares := 0, b.scriptsByMaster()
	for addr := range shares {
		shares[addr] -= before[addr]
		total += shares[addr]
	}
	t.Log(shares)
	require.Len(t, shares, 3)
	for addr, share := range shares {
		even := float64(total) / 3
		assert.InDelta(t, even, share, 0.15*even, "scripts on %s", addr)
	}
}

// scriptsByMaster is how many scripts each master has run.
func (b *bench) scriptsByMaster() map[string]int {
	b.t.Helper()
	var mu sync.Mutex
	counts := map[string]int{}
	require.NoError(b.t, b.client.(*redis.ClusterClient).ForEachMaster(b.t.Context(),
		func(ctx context.Context, master *redis.Client) error {
			info, err := master.Info(ctx, "commandstats").Result()
			_, line, _ := strings.Cut(info, "cmdstat_evalsha:calls=")
			calls, _, _ := strings.Cut(line, ",")
			n, _ := strconv.Atoi(calls) // none yet
			mu.Lock()
			defer mu.Unlock()
			counts[master.Options().Addr] = n
			return err
		}))
	return counts
}

// tally counts the deliveries of one group by UUID, acking each message.
type tally struct {
	mu    sync.Mutex
	seen  map[string]int       // guarded by mu
	due   map[string]time.Time // guarded by mu
	ended chan struct{}
}

func (b *bench) tally(change ...func(*subConfig)) (t *tally, stop func()) {
	b.t.Helper()
	sub := b.subscriber(change...)
	messages, err := sub.Subscribe(context.Background(), b.topic)
	require.NoError(b.t, err)
	t = &tally{seen: map[string]int{}, due: map[string]time.Time{}, ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		for msg := range messages {
			d, _ := redisdelay.DeliveryFromContext(msg.Context())
			t.mu.Lock()
			t.seen[msg.UUID]++
			t.due[msg.UUID] = d.DueAt
			t.mu.Unlock()
			msg.Ack()
		}
	}()
	return t, func() {
		require.NoError(b.t, sub.Close())
		<-t.ended
	}
}

func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.seen)
}

func group(name string) func(*subConfig) {
	return func(c *subConfig) {
		c.ConsumerGroup, c.MaxInFlight, c.PollInterval = name, 10, time.Second
	}
}

func TestAddingPartitionsUnderLoadLosesNothing(t *testing.T) {
	b := newClusterBench(t)
	billing, stopBilling := b.tally(group("billing"))
	shipping, stopShipping := b.tally(group("shipping"))
	old := b.publisher(partitions(4))
	grown := b.publisher(partitions(12))
	const count = 1500
	publish := func(p *redisdelay.Publisher, name string) {
		for n := range count {
			assert.NoError(t, p.Publish(b.topic, delayed(fmt.Sprint(name, n), delay.For(20*time.Millisecond))))
		}
	}
	var publishing sync.WaitGroup
	publishing.Go(func() { publish(old, "old") })
	require.Eventually(t, func() bool { return billing.count() > count/10 }, soon, time.Millisecond)
	publishing.Go(func() { publish(grown, "grown") })
	publishing.Wait()
	for name, group := range map[string]*tally{"billing": billing, "shipping": shipping} {
		require.Eventually(t, func() bool { return group.count() == 2*count }, soon, 5*time.Millisecond,
			"%s got %d of %d", name, group.count(), 2*count)
	}
	b.settled()
	stopBilling()
	stopShipping()
	for _, group := range []*tally{billing, shipping} {
		for uuid, n := range group.seen {
			assert.Equal(t, 1, n, uuid)
		}
	}
	number, err := b.client.Get(t.Context(), b.key("partitions")).Result()
	require.NoError(t, err)
	assert.Equal(t, "12", number)
}

func TestAPublisherWithFewerPartitionsKeepsTheHigherNumber(t *testing.T) {
	b := newClusterBench(t)
	byKey := func(c *redisdelay.PublisherConfig) { c.PartitionKey = byMetadata }
	many, few := b.publisher(partitions(6), byKey), b.publisher(partitions(2), byKey)
	messages := b.subscribe()
	for n := range 30 {
		for _, p := range []*redisdelay.Publisher{many, few} { // the same key meets in one partition, in order
			msg := message.NewMessage(strconv.Itoa(n), nil)
			msg.Metadata.Set("order", strconv.Itoa(n))
			require.NoError(t, p.Publish(b.topic, msg))
		}
	}
	seen := map[string]int{}
	for range 60 {
		msg := b.next(messages)
		seen[msg.UUID]++
		msg.Ack()
	}
	assert.Len(t, seen, 30)
	b.settled()
	assert.Len(t, b.partitionsInUse(), 6)
}

// TestGroupsAddedWhileMessagesFlow adds groups to a topic with partitions: each gets
// what was not due yet when its Subscribe returned, once.
func TestGroupsAddedWhileMessagesFlow(t *testing.T) {
	b := newClusterBench(t)
	const count, every, wait = 1000, 2 * time.Millisecond, 100 * time.Millisecond
	first, stopFirst := b.tally(group("first"))
	p := b.publisher(partitions(6))
	published := make(chan struct{})
	go func() {
		defer close(published)
		for n := range count {
			assert.NoError(t, p.Publish(b.topic, delayed(strconv.Itoa(n), delay.For(wait))))
			<-time.After(every)
		}
	}()
	type late struct {
		*tally
		stop  func()
		since time.Time
	}
	var groups []late
	for n := range 5 {
		<-time.After(time.Duration(100+rand.IntN(200)) * time.Millisecond)
		tally, stop := b.tally(group(fmt.Sprint("late", n)))
		groups = append(groups, late{tally, stop, b.redisTime()})
	}
	<-published
	require.Eventually(t, func() bool { return first.count() == count }, soon, 5*time.Millisecond)
	b.settled()
	stopFirst()
	for n, g := range groups {
		g.stop()
		missed := 0
		for uuid, due := range first.due {
			assert.LessOrEqual(t, g.seen[uuid], 1, "group %d got %s more than once", n, uuid)
			if due.After(g.since) && g.seen[uuid] == 0 {
				missed++
			}
		}
		assert.Zero(t, missed, "messages that group %d missed", n)
		assert.NotZero(t, len(g.seen))
	}
}

func TestRunningSubscriptionsAreToldOfNewPartitions(t *testing.T) {
	for name, b := range map[string]*bench{"one server": newBench(t), "Cluster": newClusterBench(t)} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			messages := b.subscribe(func(c *subConfig) { c.PollInterval, c.MaxInFlight = time.Hour, 10 })
			b.idle(messages)
			p := b.publisher(partitions(5))
			for n := range 10 {
				require.NoError(t, p.Publish(b.topic, message.NewMessage(strconv.Itoa(n), nil)))
			}
			for range 10 {
				b.next(messages).Ack()
			}
			b.settled()
		})
	}
}

func TestMessageKeysMeetInOnePartition(t *testing.T) {
	b := newClusterBench(t)
	one, other := b.publisher(partitions(8)), b.publisher(partitions(8))
	for n := range 20 {
		key := fmt.Sprint("key", n)
		require.NoError(t, one.Publish(b.topic, withKey("a", key, delay.For(time.Hour))))
		require.ErrorIs(t, other.Publish(b.topic, withKey("b", key, delay.For(time.Hour))), redisdelay.ErrDuplicateMessage)
		require.NoError(t, other.Reschedule(t.Context(), b.topic, key, delay.For(2*time.Hour)))
		require.NoError(t, one.Cancel(t.Context(), b.topic, key))
		require.ErrorIs(t, other.Cancel(t.Context(), b.topic, key), redisdelay.ErrMessageNotFound)
	}
}

func TestDeadLettersOfAllPartitions(t *testing.T) {
	b := newClusterBench(t)
	p := b.publisher(partitions(4))
	sub := b.subscriber(func(c *subConfig) { c.MaxDeliveries, c.PollInterval = 1, 300*time.Millisecond })
	messages, err := sub.Subscribe(context.Background(), b.topic)
	require.NoError(t, err)
	for n := range 8 {
		require.NoError(t, p.Publish(b.topic, message.NewMessage(strconv.Itoa(n), nil)))
		b.next(messages).Nack()
	}
	var letters []redisdelay.DeadLetter
	require.Eventually(t, func() bool {
		letters, err = sub.DeadLetters(t.Context(), b.topic, 100)
		return err == nil && len(letters) == 8
	}, soon, 5*time.Millisecond)
	assert.True(t, slices.IsSortedFunc(letters, func(a, b redisdelay.DeadLetter) int {
		return a.BuriedAt.Compare(b.BuriedAt)
	}), "the oldest first")
	some, err := sub.DeadLetters(t.Context(), b.topic, 3)
	require.NoError(t, err)
	require.Len(t, some, 3)
	assert.Equal(t, letters[2].ID, some[2].ID)

	n, err := sub.RequeueDeadLetters(t.Context(), b.topic, letters[0].ID, letters[1].ID, letters[2].ID, "unknown")
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	for range 3 {
		b.next(messages).Ack()
	}
	n, err = sub.DiscardDeadLetters(t.Context(), b.topic, letters[3].ID, letters[4].ID, letters[5].ID, letters[6].ID, letters[7].ID)
	require.NoError(t, err)
	assert.Equal(t, 5, n)
	b.settled()
}

func TestNotificationsWakeSubscriptionsOnACluster(t *testing.T) {
	b := newClusterBench(t)
	p := b.publisher(partitions(4))
	require.NoError(t, p.Publish(b.topic, message.NewMessage("first", nil)))
	messages := b.subscribe(func(c *subConfig) { c.PollInterval = time.Hour })
	b.expect(messages, "first")
	b.idle(messages)
	for n := range 8 {
		require.NoError(t, p.Publish(b.topic, message.NewMessage(strconv.Itoa(n), nil)))
		b.expect(messages, strconv.Itoa(n))
	}
	b.settled()
}

func TestWaitForReplicas(t *testing.T) {
	wait := func(c *redisdelay.PublisherConfig) { c.WaitReplicas, c.WaitTimeout = 1, 300*time.Millisecond }
	t.Run("none there", func(t *testing.T) {
		b := newBench(t)
		p := b.publisher(wait)
		messages := b.subscribe()
		for _, uuid := range []string{"a", "b"} { // the second finds the script loaded
			var shortfall *redisdelay.ReplicationError
			require.ErrorAs(t, p.Publish(b.topic, message.NewMessage(uuid, nil)), &shortfall)
			assert.Equal(t, redisdelay.ReplicationError{Want: 1}, *shortfall)
			b.expect(messages, uuid) // stored all the same
		}
		require.ErrorIs(t, b.publishWithKeyTwice(p), redisdelay.ErrDuplicateMessage)
	})
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"Sentinel": func(t *testing.T) redis.UniversalClient { return redistest.SharedSentinel(t).Client(t) },
		"Cluster":  func(t *testing.T) redis.UniversalClient { return redistest.SharedCluster(t).Client(t) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBenchWith(t, client(t))
			p := b.publisher(wait, partitions(3))
			messages := b.subscribe()
			for n := range 12 {
				require.NoError(t, p.Publish(b.topic, message.NewMessage(strconv.Itoa(n), nil)))
			}
			for range 12 {
				b.next(messages).Ack()
			}
			b.settled()
		})
	}
}

// publishWithKeyTwice returns the error of the second call.
func (b *bench) publishWithKeyTwice(p *redisdelay.Publisher) error {
	b.t.Helper()
	_ = p.Publish(b.topic, withKey("c", "k", delay.For(time.Hour))) // too few replicas
	return p.Publish(b.topic, withKey("d", "k", delay.For(time.Hour)))
}
