package chaos

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestAClientThatReadsFromReplicas uses clients that send reads to replicas, which lag
// behind their masters.
func TestAClientThatReadsFromReplicas(t *testing.T) {
	onlyInFull(t)
	cluster := redistest.NewCluster(t, "--cluster-node-timeout", "5000") // no master is to be replaced
	for name, options := range fixture.ReplicaReaders() {
		t.Run(name, func(t *testing.T) {
			s := newSceneOn(t, func() redis.UniversalClient {
				own := options // the client changes its options
				own.Addrs = cluster.Addrs()
				return redis.NewClusterClient(&own)
			})
			var clients []redis.UniversalClient
			for range 8 {
				clients = append(clients, s.dial())
				require.NoError(t, clients[len(clients)-1].Ping(t.Context()).Err())
			}
			<-time.After(300 * time.Millisecond) // for go-redis to measure latencies
			defer stutter(t, cluster)()
			defer s.ballast()()
			t.Run("a new message can be cancelled", func(t *testing.T) { s.cancelsAtOnce(t, clients) })
			t.Run("new partitions know the groups", func(t *testing.T) { s.raisesPartitions(t, clients) })
		})
	}
}

// stutter keeps pausing the replicas, so that they fall behind and answer clients before
// they have caught up.
func stutter(t *testing.T, cluster *redistest.Cluster) (end func()) {
	t.Helper()
	var replicas []*redistest.Server
	for slot := 0; slot < 1<<14; slot += 1 << 12 {
		some, err := cluster.Replicas(t.Context(), slot)
		require.NoError(t, err)
		replicas = append(replicas, some...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
				for _, replica := range replicas {
					assert.NoError(t, replica.Signal(sig))
				}
				<-time.After(5 * time.Millisecond)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// ballast gives the topic's replica so much to read that it answers clients before it has
// caught up.
func (s *scene) ballast() (end func()) {
	client, key, much := s.dial(), s.Key("ballast"), make([]byte, 2<<20)
	ctx, cancel := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	writing.Go(func() {
		for ctx.Err() == nil {
			assert.NoError(s.T, client.Set(context.WithoutCancel(ctx), key, much, 0).Err())
			<-time.After(4 * time.Millisecond)
		}
	})
	return func() {
		cancel()
		writing.Wait()
	}
}

// cancelsAtOnce cancels messages right after they are published.
func (s *scene) cancelsAtOnce(t *testing.T, clients []redis.UniversalClient) {
	t.Helper()
	var missing atomic.Int64
	var callers sync.WaitGroup
	for n, client := range clients {
		publisher := s.publisher(redisdelay.PublisherConfig{Client: client})
		callers.Go(func() {
			for i := range 5000 / len(clients) {
				key := fmt.Sprint("key-", n, "-", i)
				msg := fixture.Delayed(key, time.Hour)
				redisdelay.SetKey(msg, key)
				if !assert.NoError(t, publisher.Publish(s.Topic, msg)) {
					return
				}
				if _, err := publisher.Cancel(t.Context(), s.Topic, key); err != nil {
					missing.Add(1)
				}
			}
		})
	}
	callers.Wait()
	require.Zero(t, missing.Load(), "Cancel did not find new messages")
}

// raisesPartitions registers two groups, raises the number of partitions right away, and
// lets the older group claim before the newer one.
func (s *scene) raisesPartitions(t *testing.T, clients []redis.UniversalClient) {
	t.Helper()
	const partitions = 8
	missed := 0
	for n := range 100 {
		trial := &scene{Scene: s.Beside(fmt.Sprint("-", n)), history: &History{}}
		trial.T = t
		client := clients[n%len(clients)]
		require.NoError(t, trial.publisher(redisdelay.PublisherConfig{Client: client}).Publish(trial.Topic, fixture.Delayed("m", time.Hour)))
		raising := trial.publisher(redisdelay.PublisherConfig{
			Client: client, Partitions: partitions,
			PartitionKey: func(_ string, msg *message.Message) string { return msg.UUID },
		})
		for _, group := range []string{"older", "newer"} {
			subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: group}, nil)
			require.NoError(t, err)
			require.NoError(t, subscriber.SubscribeInitialize(trial.Topic))
			require.NoError(t, subscriber.Close())
		}
		const count = 2 * partitions
		for i := range count {
			require.NoError(t, raising.Publish(trial.Topic, fixture.Delayed(fmt.Sprint("m", i), 0)))
		}
		for _, group := range []string{"older", "newer"} {
			missed += count - trial.receives(client, group, count)
		}
	}
	require.Zero(t, missed, "messages that did not reach a group")
}

// receives returns how many of count messages a group gets.
func (s *scene) receives(client redis.UniversalClient, group string, count int) int {
	s.T.Helper()
	var got atomic.Int64
	config := redisdelay.SubscriberConfig{Client: client, ConsumerGroup: group, MaxInFlight: 10}
	stop := s.handle(config, func(msg *message.Message) {
		got.Add(1)
		msg.Ack()
	})
	within := 3 * time.Second
	for deadline := time.Now().Add(within); int(got.Load()) < count && time.Now().Before(deadline); {
		<-time.After(5 * time.Millisecond)
	}
	stop()
	return int(got.Load())
}
