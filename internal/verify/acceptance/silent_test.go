package acceptance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// silentFailure is something that stops notifications, and perhaps claims, without an error.
type silentFailure struct {
	name string
	// start returns the client of the subscription, that of the publisher, and what makes the failure happen. A message that is
	// published after that is not announced on the subscription's connection.
	start func(t *testing.T, timeout time.Duration) (client, publisher *redis.Client, fail func())
}

var silentFailures = []silentFailure{
	{"a planned failover of Sentinel", plannedFailover},
	{"an endpoint that moves", movedEndpoint},
	{"connections that die silently", silentConnections},
}

// TestSilentConnectionFailuresAreDetected: a message that is published right after such a failure is delivered before an idle
// subscription polls, which it does every 26 s or less often. TestLostNotificationsDelayMessagesAtMostThePollInterval in package
// delivery has the exact bound.
func TestSilentConnectionFailuresAreDetected(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, failure := range silentFailures {
		for _, timeout := range []time.Duration{3 * time.Second, -1} {
			t.Run(fmt.Sprint(failure.name, " ", timeout), func(t *testing.T) {
				t.Parallel() // it mostly waits
				require.Less(t, failure.lateness(t, timeout), 20*time.Second)
			})
		}
	}
}

// lateness is how late the message is.
func (f silentFailure) lateness(t *testing.T, timeout time.Duration) (late time.Duration) {
	t.Helper()
	t.Run("run", func(t *testing.T) {
		client, publisher, fail := f.start(t, timeout)
		s := fixture.NewWith(t, client)
		p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Client = publisher })
		messages := s.Subscribe(func(c *subConfig) { c.MaxInFlight = 10 })
		require.NoError(t, p.Publish(s.Topic, message.NewMessage("before", nil)))
		s.Expect(messages, "before")
		<-time.After(idleBefore + rand.N(2*time.Second)) // the failure may meet any part of a heartbeat
		fail()
		require.NoError(t, p.Publish(s.Topic, message.NewMessage("after", nil)))
		start := time.Now()
		select {
		case msg := <-messages:
			late = time.Since(start)
			require.Equal(t, "after", msg.UUID)
			msg.Ack()
		case <-time.After(time.Minute):
			require.Fail(t, "the message never comes")
		}
	})
	return late
}

// idleBefore is how long the subscription is idle before the failure.
const idleBefore = 3 * time.Second

// plannedFailover promotes the replica. The old master still answers: the sentinels, which make it a replica some seconds later, have
// no right to that until the end of the test.
func plannedFailover(t *testing.T, timeout time.Duration) (client, publisher *redis.Client, fail func()) {
	t.Helper()
	sentinel := redistest.NewSentinel(t)
	open := func() *redis.Client {
		return closed(t, redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: sentinel.MasterName, SentinelAddrs: sentinel.Addrs(), ReadTimeout: timeout,
		}))
	}
	client, publisher = open(), open()
	return client, publisher, func() {
		port := func() string {
			config, _ := publisher.ConfigGet(t.Context(), "port").Result() // none while it changes
			return config["port"]
		}
		before := port()
		master, err := sentinel.Master(t.Context())
		require.NoError(t, err)
		old := master.Client(t)
		redistest.Command(t, old, "ACL", "SETUSER", "default", "-replicaof", "-slaveof")
		over := make(chan error, 1)
		go func() { over <- sentinel.Failover(context.WithoutCancel(t.Context())) }() // the cleanup waits for it
		t.Cleanup(func() { require.NoError(t, <-over) })
		t.Cleanup(func() { _ = old.Do(context.WithoutCancel(t.Context()), "ACL", "SETUSER", "default", "+@all").Err() }) // else that fails
		require.Eventually(t, func() bool {
			now := port()
			return now != "" && now != before
		}, time.Minute, 5*time.Millisecond)
	}
}

// movedEndpoint lets an address lead to another server, and the pool connect again. The old server stays.
func movedEndpoint(t *testing.T, timeout time.Duration) (client, publisher *redis.Client, fail func()) {
	t.Helper()
	from, to := redistest.New(t), redistest.New(t)
	target := to.Client(t)
	host, port, err := net.SplitHostPort(from.Addr)
	require.NoError(t, err)
	redistest.Command(t, target, "REPLICAOF", host, port)
	var addr atomic.Value
	addr.Store(from.Addr)
	open := func() *redis.Client {
		return closed(t, redis.NewClient(&redis.Options{
			Addr: from.Addr, ReadTimeout: timeout,
			Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, addr.Load().(string))
			},
		}))
	}
	return open(), open(), func() {
		require.Eventually(t, func() bool {
			info, err := target.Info(t.Context(), "replication").Result()
			return err == nil && strings.Contains(info, "master_link_status:up")
		}, fixture.Soon, 10*time.Millisecond)
		redistest.Command(t, target, "REPLICAOF", "NO", "ONE")
		addr.Store(to.Addr)
		redistest.Command(t, from.Client(t), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	}
}

// silentConnections lets a router forget all connections of the subscription, and pass new ones.
func silentConnections(t *testing.T, timeout time.Duration) (client, publisher *redis.Client, fail func()) {
	t.Helper()
	server := redistest.New(t)
	router := startForgetful(t, server.Addr)
	client = closed(t, redis.NewClient(&redis.Options{Addr: router.addr, ReadTimeout: timeout}))
	return client, server.Client(t), router.forget
}

func closed(t *testing.T, client *redis.Client) *redis.Client {
	t.Helper()
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// forgetful forwards bytes between clients and a server, but not on connections that it has forgotten.
type forgetful struct {
	addr string

	mu    sync.Mutex
	conns map[net.Conn]bool // guarded by mu; the clients' ends, and whether they are forgotten
}

func startForgetful(t *testing.T, target string) *forgetful {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &forgetful{addr: listener.Addr().String(), conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			f.mu.Lock()
			f.conns[client] = false
			f.mu.Unlock()
			running.Go(func() { f.pass(client, client, server) })
			running.Go(func() { f.pass(client, server, client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		f.mu.Lock()
		for client := range f.conns {
			_ = client.Close()
		}
		f.mu.Unlock()
		running.Wait()
	})
	return f
}

// forget makes all connections that are open silent.
func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for client := range f.conns {
		f.conns[client] = true
	}
}

func (f *forgetful) pass(client, from, to net.Conn) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		f.mu.Lock()
		silent := f.conns[client]
		f.mu.Unlock()
		if silent {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
