package inspect

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/scripttest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const lease = 30 * time.Second

const mebibyte = 1 << 20

// scene is a topic on a real Redis, for one test only.
type scene struct {
	t         *testing.T
	client    *redis.Client
	partition *queue.Partition
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

// newStore returns the tests' queue.Store in a Redis.
func newStore(t *testing.T, client redis.UniversalClient) *queue.Store {
	t.Helper()
	s, err := queue.NewStore(client, "test", observe.Observer{})
	require.NoError(t, err)
	return s
}

// group returns a registered group.
func (r *scene) group(name string) *queue.Group {
	r.t.Helper()
	g := r.partition.Group(name)
	require.NoError(r.t, g.Register(r.ctx()))
	return g
}

var batches int64

// push stores messages as one call of a new publisher.
func (r *scene) push(messages ...queue.Message) {
	r.t.Helper()
	batches++
	refused, err := r.partition.Push(r.ctx(), queue.Batch{
		Publisher: "p", Number: batches, Duplicates: queue.RejectDuplicates, Calls: [][]queue.Message{messages},
	})
	require.NoError(r.t, err)
	require.Empty(r.t, refused)
}

// due is a message that is due now.
func due(id string) queue.Message { return queue.Message{ID: id, Body: []byte("body " + id)} }

// after is a message with a delay in seconds.
func after(id string, seconds int64) queue.Message {
	return queue.Message{ID: id, Delay: time.Duration(seconds) * time.Second, Body: []byte("body " + id)}
}

// keyed is an id that carries a message key.
func keyed(n int, key string) string { return fmt.Sprintf("%026d:%s", n, key) }

// request asks for up to limit messages, by a consumer whose workers are all free.
func (r *scene) request(consumer string, limit int) queue.Request {
	r.number[consumer]++
	return queue.Request{Consumer: consumer, Number: r.number[consumer], Limit: limit, Free: limit, Lease: lease}
}

// claim claims up to limit messages and returns their deliveries as "id#token".
func (r *scene) claim(g *queue.Group, consumer string, limit int) []string {
	r.t.Helper()
	return r.claimWith(g, r.request(consumer, limit))
}

func (r *scene) claimWith(g *queue.Group, request queue.Request) []string {
	r.t.Helper()
	claims, err := g.Claim(r.ctx(), request)
	require.NoError(r.t, err)
	return deliveries(claims)
}

func deliveries(claims queue.Claims) []string {
	list := []string{}
	for _, m := range claims.Messages {
		list = append(list, m.ID+"#"+m.Token)
	}
	return list
}

// through is the partition as another client sees it.
func (r *scene) through(client redis.UniversalClient) *queue.Partition {
	return queue.NewPartition(newStore(r.t, client), r.partition.Topic(), r.partition.Number())
}

// errOf is the error of a call.
func errOf[T any](_ T, err error) error { return err }

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

func ack(t *testing.T, g *queue.Group, ids ...string) {
	t.Helper()
	var done []queue.Done
	for _, id := range ids {
		done = append(done, queue.Done{ID: id})
	}
	_, err := g.Ack(t.Context(), done)
	require.NoError(t, err)
}

func nack(t *testing.T, g *queue.Group, nacks ...queue.Nack) {
	t.Helper()
	stale, _, err := g.Nack(t.Context(), 0, nacks)
	require.NoError(t, err)
	require.Empty(t, stale)
}

// bury makes a message a dead letter of a group in its first delivery.
func (r *scene) bury(g *queue.Group, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		require.Equal(r.t, []string{id + "#1"}, r.claim(g, "c", 1))
		stale, err := g.Bury(r.ctx(), []queue.Burial{{Delivery: queue.Delivery{ID: id, Token: "1"}, Reason: "bad " + id}})
		require.NoError(r.t, err)
		require.Empty(r.t, stale)
	}
}

// topicOf is a topic with some partitions, for this scene only.
func (r *scene) topicOf(partitions int) *queue.Topic {
	r.t.Helper()
	topic := newStore(r.t, r.client).Topic(r.partition.Topic())
	require.NoError(r.t, topic.Enlist(r.ctx()))
	_, err := topic.Raise(r.ctx(), partitions)
	require.NoError(r.t, err)
	return topic
}

// pushWindow stores a batch whose keys are taken for a minute at least, and returns which
// of its calls were rejected.
func (r *scene) pushWindow(number int64, duplicates queue.Duplicates, calls ...[]queue.Message) []int {
	r.t.Helper()
	rejected, err := r.partition.Push(r.ctx(), queue.Batch{
		Publisher: "p", Number: number, Duplicates: duplicates, Window: time.Minute, Calls: calls,
	})
	require.NoError(r.t, err)
	var list []int
	for _, d := range rejected {
		list = append(list, d.Call)
	}
	return list
}

// both gives a message to two groups; a consumer of each holds it.
func (r *scene) both() (g, h *queue.Group) {
	r.t.Helper()
	g, h = r.group("g"), r.group("h")
	r.push(due("a"))
	require.Equal(r.t, []string{"a#1"}, r.claim(g, "c", 1))
	require.Equal(r.t, []string{"a#1"}, r.claim(h, "e", 1))
	return g, h
}

// hStillGetsIt checks that the group h, which still needs the message, gets it again.
func (r *scene) hStillGetsIt() {
	r.t.Helper()
	h := r.partition.Group("h")
	nack(r.t, h, queue.Nack{Delivery: queue.Delivery{ID: "a", Token: "1"}})
	claims, err := h.Claim(r.ctx(), r.request("e", 1))
	require.NoError(r.t, err)
	require.Empty(r.t, claims.Buried)
	require.Len(r.t, claims.Messages, 1)
	assert.Equal(r.t, "body a", string(claims.Messages[0].Body))
	ack(r.t, h, "a")
}

// on is the partition as it is in Redis.
func (r *scene) on() *scripttest.Scene {
	return &scripttest.Scene{T: r.t, Client: r.client, Partition: r.partition.Partition}
}

func (r *scene) ctx() context.Context { return r.t.Context() }

func (r *scene) state() map[string]string { return r.on().State() }

func (r *scene) now() time.Time { return r.on().Now() }

func (r *scene) expire(g *queue.Group, id string) { r.on().Expire(g.Name(), id) }

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
func notSlow(t *testing.T, cases map[string]func(r *scene, g *queue.Group) func()) {
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

// ear hears what consumers hear.
type ear chan queue.Hint

func (e ear) Heard(hint queue.Hint) { e <- hint }
func (ear) Failed(error)            {}

// listen returns what a consumer hears next.
func (r *scene) listen(g *queue.Group, consumer string) (next func() queue.Hint) {
	r.t.Helper()
	heard := make(ear, 100)
	l := g.Listen(consumer, heard)
	r.t.Cleanup(l.Close)
	next = func() queue.Hint {
		r.t.Helper()
		select {
		case hint := <-heard:
			return hint
		case <-time.After(20 * time.Second):
			require.FailNow(r.t, "it hears nothing")
		}
		return queue.Hint{}
	}
	require.True(r.t, next().Opened)
	return next
}
