package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/scripttest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const lease = 30 * time.Second

// scene is a topic on a real Redis, for one test only.
type scene struct {
	t         *testing.T
	client    *redis.Client
	partition *Partition
	number    map[string]int64 // the last request number of each consumer
}

func newScene(t *testing.T) *scene {
	t.Helper()
	return newSceneOn(t, redistest.Shared(t))
}

func newSceneOn(t *testing.T, server *redistest.Server) *scene {
	t.Helper()
	client := server.Client(t)
	topic := fmt.Sprintf("%s/%d", t.Name(), rand.Uint64())
	return &scene{t: t, client: client, partition: newStore(t, client).Topic(topic).Partition(0), number: map[string]int64{}}
}

// newStore returns the tests' Store in a Redis.
func newStore(t *testing.T, client redis.UniversalClient) *Store {
	t.Helper()
	s, err := NewStore(client, "test", observe.Observer{})
	require.NoError(t, err)
	return s
}

// group returns a registered group.
func (r *scene) group(name string) *Group {
	r.t.Helper()
	g := r.partition.Group(name)
	require.NoError(r.t, g.Register(r.ctx()))
	return g
}

// listen returns what a consumer hears next.
func (r *scene) listen(g *Group, consumer string) (next func() Hint) {
	r.t.Helper()
	ear := newTestEar(r.t)
	l := g.Listen(consumer, ear)
	r.t.Cleanup(l.Close)
	require.Equal(r.t, Hint{Opened: true}, ear.next(), "a new subscription counts as a hint")
	return ear.next
}

// testEar keeps what it hears.
type testEar struct {
	t        *testing.T
	hints    chan Hint
	failures chan error
}

func newTestEar(t *testing.T) *testEar {
	return &testEar{t: t, hints: make(chan Hint, 100), failures: make(chan error, 100)}
}

func (e *testEar) Heard(hint Hint)  { e.hints <- hint }
func (e *testEar) Failed(err error) { e.failures <- err }

func (e *testEar) next() Hint {
	e.t.Helper()
	return receive(e.t, e.hints)
}

func (e *testEar) failure() error {
	e.t.Helper()
	return receive(e.t, e.failures)
}

func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "it hears nothing")
	}
	return value
}

var batches int64

// push stores messages as one call of a new publisher.
func (r *scene) push(messages ...Message) {
	r.t.Helper()
	batches++
	refused, err := r.partition.Push(r.ctx(), Batch{
		Publisher: "p", Number: batches, Duplicates: RejectDuplicates, Calls: [][]Message{messages},
	})
	require.NoError(r.t, err)
	require.Empty(r.t, refused)
}

// due is a message that is due now.
func due(id string) Message { return Message{ID: id, Body: []byte("body " + id)} }

// after is a message with a delay in seconds.
func after(id string, seconds int64) Message {
	return Message{ID: id, Delay: time.Duration(seconds) * time.Second, Body: []byte("body " + id)}
}

// keyed is an id that carries a message key.
func keyed(n int, key string) string { return fmt.Sprintf("%026d:%s", n, key) }

// request asks for up to limit messages, by a consumer whose workers are all free.
func (r *scene) request(consumer string, limit int) Request {
	r.number[consumer]++
	return Request{Consumer: consumer, Number: r.number[consumer], Limit: limit, Free: limit, Lease: lease}
}

func done(ids ...string) []Done {
	var list []Done
	for _, id := range ids {
		list = append(list, Done{ID: id})
	}
	return list
}

func held(id, token string) Held { return Held{Delivery: Delivery{ID: id, Token: token}} }

func handedOut(id, token string) Held {
	return Held{Delivery: Delivery{ID: id, Token: token}, HandedOut: true}
}

// claim claims up to limit messages and returns their deliveries as "id#token".
func (r *scene) claim(g *Group, consumer string, limit int) []string {
	r.t.Helper()
	return r.claimWith(g, r.request(consumer, limit))
}

func (r *scene) claimWith(g *Group, request Request) []string {
	r.t.Helper()
	claims, err := g.Claim(r.ctx(), request)
	require.NoError(r.t, err)
	return deliveries(claims)
}

func deliveries(claims Claims) []string {
	list := []string{}
	for _, m := range claims.Messages {
		list = append(list, m.ID+"#"+m.Token)
	}
	return list
}

// through is the partition as another client sees it.
func (r *scene) through(client redis.UniversalClient) *Partition {
	return NewPartition(newStore(r.t, client), r.partition.Topic(), r.partition.Number())
}

// errOf is the error of a call.
func errOf[T any](_ T, err error) error { return err }

// ever is later than any burial of a test, in ms.
const ever = 4e12

// on is the partition as it is in Redis.
func (r *scene) on() *scripttest.Scene {
	return &scripttest.Scene{T: r.t, Client: r.client, Partition: r.partition.Partition}
}

func (r *scene) ctx() context.Context { return r.t.Context() }

func (r *scene) state() map[string]string { return r.on().State() }

func (r *scene) contents(key string) map[string]string {
	return (&scripttest.Scene{T: r.t, Client: r.client}).Contents(key)
}

func (r *scene) now() time.Time { return r.on().Now() }

func (r *scene) expire(g *Group, id string) { r.on().Expire(g.Name(), id) }

func (r *scene) watch(command, key string) (uses func() [][]string) {
	return r.on().Watch(command, key)
}

func (r *scene) keysOf() []string { return r.on().Keys() }

func (r *scene) groups(more int) { r.on().RegisterGroups(more) }

func (r *scene) store(set string, count, size int) []string { return r.on().Store(set, count, size) }

func (r *scene) differentRefs(ids []string, groups int) { r.on().DifferentRefs(ids, groups) }

func (r *scene) deny(server *redistest.Server, command string) *redis.Client {
	return r.on().Deny(server, command)
}

func (r *scene) reload() { r.on().Reload() }

// notSlow measures the calls that cases return, on a topic with the group g.
func notSlow(t *testing.T, cases map[string]func(r *scene, g *Group) func()) {
	t.Helper()
	begun := map[string]func(*testing.T, *redistest.Server) (*scripttest.Scene, func()){}
	for name, prepare := range cases {
		begun[name] = func(t *testing.T, server *redistest.Server) (*scripttest.Scene, func()) {
			r := newSceneOn(t, server)
			return r.on(), prepare(r, r.group("g"))
		}
	}
	scripttest.NotSlow(t, begun)
}

// tornEverywhere tears the last script of arrange in all ways, each on a new topic.
func tornEverywhere(t *testing.T, name string, arrange, afterwards func(r *scene)) {
	t.Helper()
	scripttest.TornEverywhere(t, name, func(t *testing.T, server *redistest.Server) (*scripttest.Scene, func()) {
		r := newSceneOn(t, server)
		arrange(r)
		return r.on(), func() { afterwards(r) }
	})
}
