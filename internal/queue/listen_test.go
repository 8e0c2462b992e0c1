package queue

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

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/notify"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// deafness forwards bytes between clients and a server, until it drops them.
type deafness struct {
	addr   string
	silent atomic.Bool
}

func startDeafness(t *testing.T, target string) *deafness {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &deafness{addr: listener.Addr().String()}
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
			running.Go(func() { d.pass(client, server) })
			running.Go(func() { d.pass(server, client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return d
}

func (d *deafness) pass(from, to net.Conn) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if !d.silent.Load() {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
}

// hearOn makes a handler receive a partition through a Hub of its own.
func hearOn(t *testing.T, hub *notify.Hub, p *Partition, group string) *testHandler {
	t.Helper()
	handler := newTestHandler(t)
	l := hub.Listen(p.Channel(), &notificationReader{group, "c", handler})
	t.Cleanup(l.Close)
	return handler
}

func TestASilentConnectionIsNoticed(t *testing.T) {
	server := redistest.Shared(t)
	proxy := startDeafness(t, server.Addr)
	r := newSceneOn(t, server)
	client := redis.NewClient(&redis.Options{Addr: proxy.addr, ReadTimeout: -1})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	q := r.through(client)
	handler := hearOn(t, newHub(q.Client(), 20*time.Millisecond, 100*time.Millisecond), q, "g")
	require.True(t, handler.next().Opened)
	proxy.silent.Store(true)
	require.Error(t, handler.failure())
	proxy.silent.Store(false)
	require.True(t, handler.next().Opened)
}

// TestAQuietConnectionIsKept, at the cost of one command for each heartbeat: half a command a second of an idle process.
func TestAQuietConnectionIsKept(t *testing.T) {
	assert.LessOrEqual(t, float64(time.Second)/float64(notify.Interval), 0.5)
	for name, prepare := range map[string]func(t *testing.T) (redis.UniversalClient, func() int64){
		"one server": func(t *testing.T) (redis.UniversalClient, func() int64) {
			server := redistest.New(t)
			return server.Client(t), func() int64 { return heartbeats(t, server.Client(t), "publish") }
		},
		"cluster": func(t *testing.T) (redis.UniversalClient, func() int64) {
			client := redistest.SharedCluster(t).Client(t)
			return client, func() int64 {
				var sum atomic.Int64
				require.NoError(t, client.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
					sum.Add(heartbeats(t, node, "spublish"))
					return nil
				}))
				return sum.Load()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, count := prepare(t)
			q := newStore(t, client).Topic(fmt.Sprintf("%s/%d", t.Name(), rand.Uint64())).Partition(0)
			handler := hearOn(t, newHub(q.Client(), 20*time.Millisecond, 10*time.Second), q, "g")
			require.True(t, handler.next().Opened)
			before := count()
			require.Eventually(t, func() bool { return count() >= before+5 }, time.Minute, 5*time.Millisecond)
			_, err := q.Push(t.Context(), Batch{Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{due("a")}}})
			require.NoError(t, err)
			assert.Equal(t, Hint{}, handler.next())
			assert.Empty(t, handler.failures)
		})
	}
}

// heartbeats is how many commands of their kind a server has executed.
func heartbeats(t *testing.T, client *redis.Client, command string) int64 {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, stats, found := strings.Cut(info, "cmdstat_"+command+":calls=")
	if !found {
		return 0
	}
	var calls int64
	_, err = fmt.Sscanf(stats, "%d", &calls)
	require.NoError(t, err)
	return calls
}

// TestWithoutTheRightToPublishAConsumerIsToldSo until it has the right.
func TestWithoutTheRightToPublishAConsumerIsToldSo(t *testing.T) {
	server := redistest.New(t)
	r := newSceneOn(t, server)
	redistest.Command(t, r.Client, "ACL", "SETUSER", "hearer", "on", ">pw", "~*", "&*", "+@all", "-publish")
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "hearer", Password: "pw"})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	q := r.through(client)
	handler := hearOn(t, newHub(q.Client(), 20*time.Millisecond, 10*time.Second), q, "g")
	require.ErrorContains(t, handler.failure(), "NOPERM")
	require.ErrorContains(t, handler.failure(), "NOPERM")
	redistest.Command(t, r.Client, "ACL", "SETUSER", "hearer", "+publish")
	require.True(t, handler.next().Opened)
}

func TestNotificationsOfAnotherDatabaseAreIgnored(t *testing.T) {
	server := redistest.Shared(t)
	topic := fmt.Sprintf("%s/%d", t.Name(), rand.Uint64())
	var queues []*Partition
	for db := range 2 {
		client := redis.NewClient(&redis.Options{Addr: server.Addr, DB: db})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		queues = append(queues, newStore(t, client).Topic(topic).Partition(0))
	}
	handler := newTestHandler(t)
	l := queues[1].Group("g").Listen("c", notify.Interval, handler)
	defer l.Close()
	require.True(t, handler.next().Opened)
	for n, q := range []*Partition{queues[0], queues[1]} {
		_, err := q.Push(t.Context(), Batch{
			Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{after("a", int64(100*(n+1)))}},
		})
		require.NoError(t, err)
	}
	assert.InDelta(t, 200*time.Second, handler.next().In, float64(2*time.Second), "it hears only its own database")
}

func TestNotificationsThatMakeNoSenseDoNoHarm(t *testing.T) {
	h := &notificationReader{group: "g", consumer: "c/1"}
	other := " 1 gd/2" // another consumer of the group
	for text, want := range map[string]struct {
		hint Hint
		mine bool
	}{
		"":                                {Hint{}, false},
		"+":                               {Hint{Grown: true}, true},
		"++":                              {Hint{}, false},
		"=":                               {Hint{}, false},
		"x":                               {Hint{}, false},
		"NaN":                             {Hint{}, false},
		"=NaN 1" + other:                  {Hint{}, false},
		"1e3":                             {Hint{}, false},
		"5":                               {Hint{In: 5 * time.Microsecond}, true},
		"-5":                              {Hint{}, true},
		"5 g":                             {Hint{In: 5 * time.Microsecond, Alone: true}, true},
		"5 h":                             {Hint{In: 5 * time.Microsecond}, false},
		"9223372036854775807":             {Hint{In: maxHint}, true},
		"99999999999999999999":            {Hint{}, false},
		"-9223372036854775808":            {Hint{}, true},
		"=7 3" + other:                    {Hint{In: 7 * time.Microsecond, Looked: true, Found: 3}, true},
		"=7 3 1 gc/1":                     {Hint{In: 7 * time.Microsecond, Looked: true, Found: 3}, false}, // its own
		"=7 3 1 hd/2":                     {Hint{In: 7 * time.Microsecond, Looked: true, Found: 3}, false},
		"=-1 0" + other:                   {Hint{In: -1, Looked: true}, true},
		"=-9223372036854775808 0" + other: {Hint{In: -1, Looked: true}, true},
		"=9223372036854775807 9223372036854775807" + other: {Hint{In: maxHint, Looked: true, Found: MaxMessages}, true},
		"=1 99999999999999999999" + other:                  {Hint{In: time.Microsecond, Looked: true, Found: MaxMessages}, true},
		"=1 -7" + other:                                    {Hint{In: time.Microsecond, Looked: true}, true},
		"=1 x" + other:                                     {Hint{In: time.Microsecond, Looked: true}, true},
	} {
		hint, mine := h.parse(text)
		assert.Equal(t, want.mine, mine, "%q", text)
		if want.mine {
			assert.Equal(t, want.hint, hint, "%q", text)
		}
	}
}

func FuzzNotifications(f *testing.F) {
	for _, text := range []string{"+", "=-1 0 1 gd", "17", "17 g"} {
		f.Add(text)
	}
	h := &notificationReader{group: "g", consumer: "c"}
	f.Fuzz(func(t *testing.T, text string) {
		hint, _ := h.parse(text)
		assert.LessOrEqual(t, hint.In, maxHint)
		assert.GreaterOrEqual(t, hint.In, time.Duration(-1))
		assert.GreaterOrEqual(t, hint.Found, 0)
		assert.LessOrEqual(t, hint.Found, MaxMessages)
	})
}

func TestAClaimOfAllDueMessagesIsAnnouncedToItsGroup(t *testing.T) {
	r := newScene(t)
	g, h := r.group("a group 2"), r.group("h")
	for _, consumer := range []string{"c", "d"} {
		r.claim(g, consumer, 1) // now known; nothing is due
	}
	others, own, otherGroup := r.listen(g, "d"), r.listen(g, "c"), r.listen(h, "e")
	quiet(t)
	r.push(due("1"), due("2"), after("3", 60))
	for _, next := range []func() Hint{others, own, otherGroup} {
		assert.False(t, next().Looked, "the hint of the push")
	}
	require.Len(t, r.claim(g, "c", 1), 1) // more is due, so it announces nothing
	quiet(t)
	require.Len(t, r.claim(g, "c", 1), 1) // as many as it asked for, and the last
	hint := others()
	assert.True(t, hint.Looked)
	assert.Equal(t, 1, hint.Found)
	assert.InDelta(t, lease, hint.In, float64(10*time.Second), "until the leases end")
	ack(t, g, "1", "2")
	quiet(t)
	require.Empty(t, r.claim(g, "c", 1))
	hint = others()
	assert.True(t, hint.Looked)
	assert.Zero(t, hint.Found)
	assert.InDelta(t, time.Minute, hint.In, float64(10*time.Second))

	r.claim(h, "e", 2)
	nack(t, h, Nack{Delivery: Delivery{"1", "1"}})
	assert.False(t, otherGroup().Looked, "neither its own claim nor those of the other group")
	r.push(due("4"))
	assert.False(t, own().Looked, "a consumer does not hear of its own claims")
}

// quiet waits until a consumer that claims again announces it.
func quiet(t *testing.T) {
	t.Helper()
	<-time.After(5 * time.Millisecond)
}

func TestALoneConsumerAnnouncesNothing(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.claim(g, "c", 1)
	next := r.listen(g, "other")
	quiet(t)
	r.claim(g, "c", 1)
	r.push(after("a", 60))
	assert.False(t, next().Looked)
}

// distinct is a client that cannot be compared with others.
type distinct struct {
	*redis.Client
	_ []int
}

func TestStoresOfOneClientShareAHub(t *testing.T) {
	client, other := redistest.Client(t), redistest.Client(t)
	of := func(client redis.UniversalClient, prefix string) (*notify.Hub, func()) {
		s, err := NewStore(client, prefix, observe.Observer{})
		require.NoError(t, err)
		hub, release := hubs.of(s.Client, notify.Interval)
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
				handler := newTestHandler(t)
				l := topic.Partition(rand.IntN(partitions)).Group("g").Listen(fmt.Sprint("c", n), notify.Interval, handler)
				select {
				case hint := <-handler.hints:
					assert.True(t, hint.Opened)
				case <-time.After(time.Minute):
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
	require.Eventually(t, func() bool { return pubsubs() == 0 }, time.Minute, 5*time.Millisecond)
}
