package acceptance

import (
	"strconv"
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
		_ = p.Publish(s.Topic, fixture.Keyed("c", "k", time.Hour)) // too few replicas, again
		require.ErrorIs(t, p.Publish(s.Topic, fixture.Keyed("d", "k", time.Hour)), redisdelay.ErrDuplicateMessage)
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
