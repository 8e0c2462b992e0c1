package queue

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/listen"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// distinct is a client that cannot be compared with others.
type distinct struct {
	*redis.Client
	_ []int
}

func TestStoresOfOneClientShareAHub(t *testing.T) {
	client, other := redistest.Client(t), redistest.Client(t)
	of := func(client redis.UniversalClient, prefix string) (*listen.Hub, func()) {
		s, err := NewStore(client, prefix, observe.Observer{})
		require.NoError(t, err)
		hub, release := hubs.of(s.Client)
		t.Cleanup(release)
		return hub, release
	}
	one, release := of(client, "a")
	two, release2 := of(client, "b")
	assert.Same(t, one, two, "another prefix")
	another, _ := of(other, "a")
	assert.NotSame(t, one, another, "another client")
	release()
	release() // changes nothing
	three, release3 := of(client, "a")
	assert.Same(t, two, three)
	release2()
	release3()
	assert.NotContains(t, hubs.hubs, any(client), "nobody listens with it")

	own, _ := of(distinct{Client: client}, "a")
	others, _ := of(distinct{Client: client}, "a")
	assert.NotSame(t, own, others, "nobody can tell")
}

// TestListenersComeAndGo listens and ends in many goroutines at once, while connections are
// killed.
func TestListenersComeAndGo(t *testing.T) {
	server := redistest.New(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	admin := server.Client(t)
	topic := newStore(t, client).Topic(t.Name())
	pubsubs := func() int {
		list, err := admin.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
		require.NoError(t, err)
		return strings.Count(list, "\n")
	}
	const listeners, rounds, partitions = 16, 30, 5
	var running sync.WaitGroup
	for n := range listeners {
		running.Go(func() {
			for range rounds {
				ear := newTestEar(t)
				l := topic.Partition(rand.IntN(partitions)).Group("g").Listen(fmt.Sprint("c", n), ear)
				select {
				case hint := <-ear.hints:
					assert.True(t, hint.Opened)
				case <-time.After(20 * time.Second):
					assert.Fail(t, "it hears nothing")
				}
				l.Retry()
				l.Close()
			}
		})
	}
	over := make(chan struct{})
	go func() { // ends with the listeners
		running.Wait()
		close(over)
	}()
	for killing := true; killing; {
		select {
		case <-over:
			killing = false
		case <-time.After(20 * time.Millisecond):
			assert.LessOrEqual(t, pubsubs(), 3, "the one in use, and those that are being closed")
			redistest.Command(t, admin, "CLIENT", "KILL", "TYPE", "pubsub")
		}
	}
	require.Eventually(t, func() bool { return pubsubs() == 0 }, 20*time.Second, 5*time.Millisecond)
}
