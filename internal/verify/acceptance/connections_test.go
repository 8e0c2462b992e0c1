package acceptance

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// named returns a client with a name that its connections have at the server.
func named(t *testing.T, kind string) (client redis.UniversalClient, name string) {
	t.Helper()
	name = "test-" + watermill.NewShortUUID()
	if kind == "Cluster" {
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.SharedCluster(t).Addrs(), ClientName: name})
	} else {
		client = redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr, ClientName: name})
	}
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client, name
}

// listeners are the connections for notifications of a client with a name, and the channels on them, without that for heartbeats.
type listeners struct{ ids, channels []int }

func (e listeners) total() (sum int) {
	for _, n := range e.channels {
		sum += n
	}
	return sum
}

var earLine = regexp.MustCompile(`^id=(\d+) .* sub=(\d+) .* ssub=(\d+) `)

func listenersOf(t *testing.T, client redis.UniversalClient, name string) (list listeners) {
	t.Helper()
	var mu sync.Mutex
	add := func(ctx context.Context, node *redis.Client) error {
		text, err := node.Do(ctx, "CLIENT", "LIST", "TYPE", "pubsub").Text()
		mu.Lock()
		defer mu.Unlock()
		for line := range strings.Lines(text) {
			if fields := earLine.FindStringSubmatch(line); fields != nil && strings.Contains(line, " name="+name+" ") {
				id, _ := strconv.Atoi(fields[1])
				plain, _ := strconv.Atoi(fields[2])
				sharded, _ := strconv.Atoi(fields[3])
				list.ids, list.channels = append(list.ids, id), append(list.channels, plain+sharded-1)
			}
		}
		return err
	}
	if cluster, is := client.(*redis.ClusterClient); is {
		// A master that was replaced keeps its connections, and hears what the new one publishes.
		require.NoError(t, cluster.ForEachShard(t.Context(), add))
	} else {
		require.NoError(t, add(t.Context(), client.(*redis.Client)))
	}
	return list
}

// open waits until so many channels are heard, and returns their connections.
func open(t *testing.T, client redis.UniversalClient, name string, channels int) (list listeners) {
	t.Helper()
	require.Eventually(t, func() bool {
		list = listenersOf(t, client, name)
		return list.total() == channels
	}, fixture.Soon, 10*time.Millisecond, "%d channels are heard", channels)
	return list
}

// TestSubscriptionsShareConnectionsForNotifications has 10 topics of 12 partitions, each with
// a Subscriber of its own, half of them with another prefix. No poll helps.
func TestSubscriptionsShareConnectionsForNotifications(t *testing.T) {
	for kind, nodes := range map[string]int{"one server": 1, "Cluster": 3} {
		t.Run(kind, func(t *testing.T) {
			client, name := named(t, kind)
			s := fixture.NewWith(t, client)
			const topics, partitions = 10, 12
			var closes []func() error
			var publish []func(uuid string)
			var channels []<-chan *message.Message
			for n := range topics {
				of := s.Beside(fmt.Sprint("-", n))
				prefix := fmt.Sprint("prefix", n%2)
				p := of.Publisher(fixture.Partitions(partitions), func(c *redisdelay.PublisherConfig) { c.Prefix = prefix })
				publish = append(publish, func(uuid string) {
					require.NoError(t, p.Publish(of.Topic, message.NewMessage(uuid, nil)))
				})
				publish[n]("first")
				sub := of.Subscriber(func(c *subConfig) { c.Prefix, c.PollInterval = prefix, time.Hour })
				messages, err := sub.Subscribe(t.Context(), of.Topic)
				require.NoError(t, err)
				s.Expect(messages, "first")
				channels, closes = append(channels, messages), append(closes, sub.Close)
			}
			before := open(t, client, name, topics*partitions)
			t.Log("channels of each connection:", before.channels)
			assert.Len(t, before.ids, nodes)
			for round := range 3 { // to other partitions each
				for n := range topics {
					publish[n](fmt.Sprint(round))
					s.Expect(channels[n], fmt.Sprint(round))
				}
			}
			for n, end := range closes {
				require.NoError(t, end())
				if n == 0 {
					after := open(t, client, name, (topics-1)*partitions)
					assert.ElementsMatch(t, before.ids, after.ids, "the connections stay")
				}
			}
			require.Eventually(t, func() bool { return len(listenersOf(t, client, name).ids) == 0 }, fixture.Soon, 10*time.Millisecond)
			assert.Zero(t, s.Log.Count("error: "), "%v", s.Log.Lines())
		})
	}
}

// TestNotificationsFollowTheirSlots moves the slots of a topic to another master, and then lets
// its replica take over. No poll helps.
func TestNotificationsFollowTheirSlots(t *testing.T) {
	t.Parallel() // it mostly waits
	cluster := redistest.NewCluster(t)
	s := fixture.NewWith(t, cluster.Client(t))
	const partitions = 6
	p := s.Publisher(fixture.Partitions(partitions))
	require.NoError(t, p.Publish(s.Topic, message.NewMessage("first", nil)))
	messages := s.Subscribe(func(c *subConfig) { c.PollInterval = time.Hour })
	s.Expect(messages, "first")
	open(t, s.Client, "", partitions)
	round := func(name string) {
		t.Helper()
		for n := range 2 * partitions { // to each of them
			uuid := fmt.Sprint(name, n)
			require.NoError(t, p.Publish(s.Topic, message.NewMessage(uuid, nil)))
			s.Expect(messages, uuid)
		}
	}
	round("before ")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for n := range 3 {
		slot, err := s.Client.ClusterKeySlot(ctx, s.Key("messages")).Result()
		require.NoError(t, err)
		require.NoError(t, cluster.Migrate(ctx, int(slot)))
		round(fmt.Sprint("move ", n, " "))
		open(t, s.Client, "", partitions)
	}
	slot, err := s.Client.ClusterKeySlot(ctx, s.Key("messages")).Result()
	require.NoError(t, err)
	require.NoError(t, cluster.Failover(ctx, int(slot)))
	round("failover ")
	open(t, s.Client, "", partitions)
	s.Settled()
}
