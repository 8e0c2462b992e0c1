package acceptance

import (
	"context"
	"fmt"
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
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func byMetadata(_ string, msg *message.Message) string { return msg.Metadata.Get("order") }

func TestOrderOfAPartitionKey(t *testing.T) {
	s := onCluster(t)
	p := s.Publisher(fixture.Partitions(8), func(c *redisdelay.PublisherConfig) { c.PartitionKey = byMetadata })
	messages := s.Subscribe()
	const keys, each = 20, 50
	var publishing sync.WaitGroup
	for key := range keys {
		publishing.Go(func() {
			for n := range each {
				msg := message.NewMessage(strconv.Itoa(n), nil)
				msg.Metadata.Set("order", strconv.Itoa(key))
				assert.NoError(t, p.Publish(s.Topic, msg))
			}
		})
	}
	next := map[string]int{}
	for range keys * each {
		msg := s.Next(messages)
		key := msg.Metadata.Get("order")
		require.Equal(t, strconv.Itoa(next[key]), msg.UUID, "messages of %s", key)
		next[key]++
		msg.Ack()
	}
	publishing.Wait()
	assert.Len(t, next, keys)
	s.Settled()
}

// TestTwelvePartitionsShareTheMastersEvenly counts the scripts that each master runs.
func TestTwelvePartitionsShareTheMastersEvenly(t *testing.T) {
	s := onCluster(t)
	const count = 3000
	p := s.Publisher(fixture.Partitions(12))
	require.NoError(t, p.Publish(s.Topic, message.NewMessage("first", nil)))
	messages := s.Subscribe(func(c *subConfig) { c.MaxInFlight = 10 }) // to all partitions at once
	s.Expect(messages, "first")
	before := scriptsByMaster(s)
	published := make(chan struct{})
	go func() {
		defer close(published)
		for n := range count {
			assert.NoError(t, p.Publish(s.Topic, message.NewMessage(strconv.Itoa(n), nil)))
		}
	}()
	for range count {
		s.Next(messages).Ack()
	}
	<-published
	s.Settled()
	total, shares := 0, scriptsByMaster(s)
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

// scriptsByMaster returns how many scripts each master has run.
func scriptsByMaster(s *fixture.Scene) map[string]int {
	s.T.Helper()
	var mu sync.Mutex
	counts := map[string]int{}
	require.NoError(s.T, s.Client.(*redis.ClusterClient).ForEachMaster(s.T.Context(),
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

func TestMessageKeysMeetInOnePartition(t *testing.T) {
	s := onCluster(t)
	one, other := s.Publisher(fixture.Partitions(8)), s.Publisher(fixture.Partitions(8))
	for n := range 20 {
		key := fmt.Sprint("key", n)
		require.NoError(t, one.Publish(s.Topic, fixture.Keyed("a", key, time.Hour)))
		require.ErrorIs(t, other.Publish(s.Topic, fixture.Keyed("b", key, time.Hour)), redisdelay.ErrDuplicateMessage)
		require.NoError(t, fixture.ErrOf(other.Reschedule(t.Context(), s.Topic, key, delay.For(2*time.Hour))))
		require.NoError(t, fixture.ErrOf(one.Cancel(t.Context(), s.Topic, key)))
		require.ErrorIs(t, fixture.ErrOf(other.Cancel(t.Context(), s.Topic, key)), redisdelay.ErrMessageNotFound)
	}
}

func TestDeadLettersOfAllPartitions(t *testing.T) {
	s := onCluster(t)
	p := s.Publisher(fixture.Partitions(4))
	messages := s.Subscribe(func(c *subConfig) { c.MaxDeliveries, c.PollInterval = 1, 300*time.Millisecond })
	for n := range 8 {
		require.NoError(t, p.Publish(s.Topic, message.NewMessage(strconv.Itoa(n), nil)))
		s.Next(messages).Nack()
	}
	letters := dead.Letters(s, 8)
	assert.True(t, slices.IsSortedFunc(letters, func(a, b admin.Entry) int { return a.At.Compare(b.At) }), "the oldest first")

	assert.Equal(t, 3, dead.Requeue(s, letters[0].ID, letters[1].ID, letters[2].ID, "unknown"))
	for range 3 {
		s.Next(messages).Ack()
	}
	assert.Equal(t, 5, dead.Discard(s, letters[3].ID, letters[4].ID, letters[5].ID, letters[6].ID, letters[7].ID))
	s.Settled()
}

func TestNotificationsWakeSubscriptionsOnACluster(t *testing.T) {
	s := onCluster(t)
	p := s.Publisher(fixture.Partitions(4))
	require.NoError(t, p.Publish(s.Topic, message.NewMessage("first", nil)))
	messages := s.Subscribe(func(c *subConfig) { c.PollInterval = time.Hour })
	s.Expect(messages, "first")
	s.Idle(messages)
	for n := range 8 {
		require.NoError(t, p.Publish(s.Topic, message.NewMessage(strconv.Itoa(n), nil)))
		s.Expect(messages, strconv.Itoa(n))
	}
	s.Settled()
}

func TestWaitForReplicas(t *testing.T) {
	t.Run("no replicas", func(t *testing.T) {
		s := fixture.New(t)
		p := s.Publisher(waitFor(300 * time.Millisecond))
		messages := s.Subscribe()
		for _, uuid := range []string{"a", "b"} { // for the second, the script is already loaded
			var shortfall *redisdelay.ReplicationError
			require.ErrorAs(t, p.Publish(s.Topic, message.NewMessage(uuid, nil)), &shortfall)
			assert.Equal(t, redisdelay.ReplicationError{Want: 1}, *shortfall)
			s.Expect(messages, uuid) // stored all the same
		}
		require.ErrorIs(t, publishWithKeyTwice(s, p), redisdelay.ErrDuplicateMessage)
	})
	for name, replicated := range map[string]func(t *testing.T) redis.UniversalClient{
		"Sentinel": func(t *testing.T) redis.UniversalClient {
			sentinel := redistest.SharedSentinel(t)
			require.NoError(t, sentinel.Ready(t.Context()))
			return sentinel.Client(t)
		},
		"Cluster": func(t *testing.T) redis.UniversalClient {
			cluster := redistest.SharedCluster(t)
			require.NoError(t, cluster.Ready(t.Context()))
			return cluster.Client(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewWith(t, replicated(t))
			p := s.Publisher(waitFor(2500*time.Millisecond), fixture.Partitions(3)) // a busy machine may need it
			messages := s.Subscribe()
			for n := range 12 {
				require.NoError(t, p.Publish(s.Topic, message.NewMessage(strconv.Itoa(n), nil)))
			}
			for range 12 {
				s.Next(messages).Ack()
			}
			s.Settled()
		})
	}
}

// waitFor makes a publisher wait for a replica, for some time at most.
func waitFor(lasts time.Duration) func(*redisdelay.PublisherConfig) {
	return func(c *redisdelay.PublisherConfig) { c.WaitReplicas, c.WaitTimeout = 1, lasts }
}

// publishWithKeyTwice returns the error of the second call.
func publishWithKeyTwice(s *fixture.Scene, p *redisdelay.Publisher) error {
	s.T.Helper()
	_ = p.Publish(s.Topic, fixture.Keyed("c", "k", time.Hour)) // too few replicas
	return p.Publish(s.Topic, fixture.Keyed("d", "k", time.Hour))
}
