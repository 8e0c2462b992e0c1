package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/notify"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// listenOn makes a handler receive the notifications of a partition through its own Hub.
func listenOn(t *testing.T, hub *notify.Hub, p *Partition, group string) *testHandler {
	t.Helper()
	handler := newTestHandler(t)
	l := hub.Listen(p.Channel(), &notificationReader{group, "c", handler})
	t.Cleanup(l.Close)
	return handler
}

// TestNotificationsArrive on a connection that is checked by heartbeats.
func TestNotificationsArrive(t *testing.T) {
	for name, client := range map[string]redis.UniversalClient{
		"one server": redistest.Client(t), "cluster": redistest.SharedCluster(t).Client(t),
	} {
		t.Run(name, func(t *testing.T) {
			q := newStore(t, client).Topic(fmt.Sprintf("%s/%d", t.Name(), rand.Uint64())).Partition(0)
			handler := listenOn(t, newHub(q.Client(), 20*time.Millisecond, 10*time.Second), q, "g")
			require.True(t, handler.next().Opened)
			_, err := q.Push(t.Context(), Batch{Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{due("a")}}})
			require.NoError(t, err)
			assert.Equal(t, Hint{}, handler.next())
			assert.Empty(t, handler.failures)
		})
	}
}

// TestAConsumerWithoutPublishPermissionGetsAnError until it gets the permission.
func TestAConsumerWithoutPublishPermissionGetsAnError(t *testing.T) {
	server := redistest.New(t)
	r := newSceneOn(t, server)
	redistest.Command(t, r.Client, "ACL", "SETUSER", "listener", "on", ">pw", "~*", "&*", "+@all", "-publish")
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "listener", Password: "pw"})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	q := r.through(client)
	handler := listenOn(t, newHub(q.Client(), 20*time.Millisecond, 10*time.Second), q, "g")
	require.ErrorContains(t, handler.failure(), "NOPERM")
	require.ErrorContains(t, handler.failure(), "NOPERM")
	redistest.Command(t, r.Client, "ACL", "SETUSER", "listener", "+publish")
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

func TestParseIgnoresMalformedNotifications(t *testing.T) {
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
		"5 g":                             {Hint{In: 5 * time.Microsecond, ForGroup: true}, true},
		"5 h":                             {Hint{In: 5 * time.Microsecond}, false},
		"9223372036854775807":             {Hint{In: maxHint}, true},
		"99999999999999999999":            {Hint{}, false},
		"-9223372036854775808":            {Hint{}, true},
		"=7 3" + other:                    {Hint{In: 7 * time.Microsecond, Claimed: true, Found: 3}, true},
		"=7 3 1 gc/1":                     {Hint{In: 7 * time.Microsecond, Claimed: true, Found: 3}, false}, // its own
		"=7 3 1 hd/2":                     {Hint{In: 7 * time.Microsecond, Claimed: true, Found: 3}, false},
		"=-1 0" + other:                   {Hint{In: -1, Claimed: true}, true},
		"=-9223372036854775808 0" + other: {Hint{In: -1, Claimed: true}, true},
		"=9223372036854775807 9223372036854775807" + other: {Hint{In: maxHint, Claimed: true, Found: MaxMessages}, true},
		"=1 99999999999999999999" + other:                  {Hint{In: time.Microsecond, Claimed: true, Found: MaxMessages}, true},
		"=1 -7" + other:                                    {Hint{In: time.Microsecond, Claimed: true}, true},
		"=1 x" + other:                                     {Hint{In: time.Microsecond, Claimed: true}, true},
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

// distinct is a client that cannot be compared with others.
type distinct struct {
	*redis.Client
	_ []int
}

func TestStoresOfOneClientShareAHub(t *testing.T) {
	client, other := redistest.Client(t), redistest.Client(t)
	of := func(client redis.UniversalClient, prefix string) (*notify.Hub, func()) {
		s := NewStore(client, prefix, observe.Observer{})
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
