package acceptance

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// traced wraps a client as people do to instrument it.
type traced struct{ *redis.ClusterClient }

// replicasOf returns clients of a cluster's replicas.
func replicasOf(t *testing.T, cluster *redistest.Cluster) []*redis.Client {
	t.Helper()
	masters, err := cluster.Masters(t.Context())
	require.NoError(t, err)
	var replicas []*redis.Client
	for _, addr := range cluster.Addrs() {
		if slices.ContainsFunc(masters, func(m *redistest.Server) bool { return m.Addr == addr }) {
			continue
		}
		client := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		replicas = append(replicas, client)
	}
	require.NotEmpty(t, replicas)
	return replicas
}

// TestAWrappedClusterClientWaitsForReplicas stops the replica of one master. The replicas of
// other masters do not have the messages.
func TestAWrappedClusterClientWaitsForReplicas(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	client := cluster.Client(t)
	s := fixture.NewWith(t, traced{client})
	p, patient := s.Publisher(waitFor(100*time.Millisecond)), s.Publisher(waitFor(2500*time.Millisecond))
	var topics, masters []string
	for n := 0; len(topics) < 8; n++ {
		topic := s.Topic + strconv.Itoa(n)
		node, err := client.MasterForKey(t.Context(), "{redisdelay:"+topic+":0}")
		require.NoError(t, err)
		if masters = append(masters, node.Options().Addr); masters[n] == masters[0] {
			topics = append(topics, topic)
			require.NoError(t, patient.Publish(topic, message.NewMessage("before", nil)))
		}
	}
	replicas, err := cluster.Replicas(t.Context(), script.SlotOf("{redisdelay:"+topics[0]+":0}"))
	require.NoError(t, err)
	require.NotEmpty(t, replicas)
	for _, replica := range replicas {
		require.NoError(t, replica.Signal(syscall.SIGSTOP))
		t.Cleanup(func() { _ = replica.Signal(syscall.SIGCONT) })
	}
	for _, topic := range topics {
		var shortfall *redisdelay.ReplicationError
		assert.ErrorAs(t, p.Publish(topic, message.NewMessage("meanwhile", nil)), &shortfall)
	}
}

// TestNothingIsReadFromReplicas uses clients that read from replicas when possible.
func TestNothingIsReadFromReplicas(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	for name, options := range fixture.ReplicaReaders() {
		t.Run(name, func(t *testing.T) {
			options.Addrs = cluster.Addrs()
			client := redis.NewClusterClient(&options)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			s := fixture.NewWith(t, client)
			for _, replica := range replicasOf(t, cluster) {
				require.NoError(t, replica.ConfigResetStat(t.Context()).Err())
			}
			sub := s.Subscriber()
			messages, err := sub.Subscribe(t.Context(), s.Topic)
			require.NoError(t, err)
			p := s.Publisher()
			require.NoError(t, p.Publish(s.Topic, message.NewMessage("0", nil)))
			wide := s.Publisher(fixture.Partitions(6))
			for n := range 12 { // raises the number and copies the group
				require.NoError(t, wide.Publish(s.Topic, message.NewMessage(strconv.Itoa(n), nil)))
			}
			require.NoError(t, wide.Publish(s.Topic, fixture.Keyed("k", "k", 0)))
			for range 14 {
				s.Next(messages).Ack()
			}
			require.NoError(t, wide.Publish(s.Topic, fixture.Keyed("l", "l", time.Hour)))
			require.NoError(t, fixture.ErrOf(wide.Reschedule(t.Context(), s.Topic, "l", delay.For(2*time.Hour))))
			require.NoError(t, fixture.ErrOf(wide.Cancel(t.Context(), s.Topic, "l")))
			dead.Messages(s, 0)
			require.Zero(t, dead.Requeue(s, "unknown"))
			for _, replica := range replicasOf(t, cluster) {
				for _, command := range readCommands(t, replica) {
					assert.Fail(t, "a replica was asked", command)
				}
			}
		})
	}
}

// readCommands lists the commands of our clients that a replica has run: replication sends
// only writes.
func readCommands(t *testing.T, replica *redis.Client) (commands []string) {
	t.Helper()
	info, err := replica.Info(context.Background(), "commandstats").Result()
	require.NoError(t, err)
	for line := range strings.Lines(info) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		switch name {
		case "get", "hget", "hexists", "hmget", "smembers", "zrange", "zscore", "type", "evalsha", "eval":
			commands = append(commands, strings.TrimSpace(line))
		}
	}
	return commands
}
