package queue

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/scripttest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const lease = 30 * time.Second

// scene is a topic on a real Redis, for one test only.
type scene struct {
	*scripttest.Scene
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
	return sceneOf(t, client, newStore(t, client).Topic(topic).Partition(0))
}

func sceneOf(t *testing.T, client *redis.Client, p *Partition) *scene {
	return &scene{Scene: &scripttest.Scene{T: t, Client: client, Partition: p.Partition}, partition: p, number: map[string]int64{}}
}

// in returns the scene in another partition.
func (r *scene) in(p *Partition) *scene {
	other := sceneOf(r.T, r.Client, p)
	other.number = r.number
	return other
}

// newStore returns the tests' Store in a Redis.
func newStore(t *testing.T, client redis.UniversalClient) *Store {
	t.Helper()
	return NewStore(client, "test", observe.Observer{})
}

// group returns a registered group.
func (r *scene) group(name string) *Group {
	r.T.Helper()
	g := r.partition.Group(name)
	require.NoError(r.T, g.Register(r.Ctx()))
	return g
}

// testHandler records its hints and errors.
type testHandler struct {
	t        *testing.T
	hints    chan Hint
	failures chan error
}

func newTestHandler(t *testing.T) *testHandler {
	return &testHandler{t: t, hints: make(chan Hint, 100), failures: make(chan error, 100)}
}

func (h *testHandler) OnHint(hint Hint)  { h.hints <- hint }
func (h *testHandler) OnError(err error) { h.failures <- err }

func (h *testHandler) next() Hint {
	h.t.Helper()
	return receive(h.t, h.hints)
}

func (h *testHandler) failure() error {
	h.t.Helper()
	return receive(h.t, h.failures)
}

func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(time.Minute):
		require.FailNow(t, "it hears nothing")
	}
	return value
}

var batches atomic.Int64

// push stores messages as one call of a new publisher.
func (r *scene) push(messages ...Message) {
	r.T.Helper()
	refused, err := r.partition.Push(r.Ctx(), Batch{
		Publisher: "p", Number: batches.Add(1), Duplicates: RejectDuplicates, Calls: [][]Message{messages},
	})
	require.NoError(r.T, err)
	require.Empty(r.T, refused)
}

// due returns a message that is due now.
func due(id string) Message {
	return Message{ID: id, Traits: script.TraitsOf(id), Body: []byte("body " + id)}
}

// after returns a message with a delay in seconds.
func after(id string, seconds int64) Message {
	return Message{ID: id, Traits: script.TraitsOf(id), Delay: time.Duration(seconds) * time.Second, Body: []byte("body " + id)}
}

// keyed returns an id with a message key.
func keyed(n int, key string) string { return fmt.Sprintf("%026d:%s", n, key) }

// request requests up to limit messages for a consumer whose workers are all free.
func (r *scene) request(consumer string, limit int) ClaimRequest {
	r.number[consumer]++
	return ClaimRequest{Consumer: consumer, Number: r.number[consumer], Limit: limit, Free: limit, Lease: lease}
}

// done returns handled deliveries from texts as claim returns them, "id#receipt"; "id" is a first delivery.
func done(deliveries ...string) []Done {
	var list []Done
	for _, delivery := range deliveries {
		id, receipt, _ := strings.Cut(delivery, "#")
		list = append(list, Done{Delivery: Delivery{id, cmp.Or(receipt, "1")}})
	}
	return list
}

func held(id, receipt string) Held { return Held{Delivery: Delivery{ID: id, Receipt: receipt}} }

func handedOut(id, receipt string) Held {
	return Held{Delivery: Delivery{ID: id, Receipt: receipt}, HandedOut: true}
}

// claim claims up to limit messages and returns their deliveries as "id#receipt".
func (r *scene) claim(g *Group, consumer string, limit int) []string {
	r.T.Helper()
	return r.claimWith(g, r.request(consumer, limit))
}

func (r *scene) claimWith(g *Group, request ClaimRequest) []string {
	r.T.Helper()
	claims, err := g.Claim(r.Ctx(), request)
	require.NoError(r.T, err)
	return deliveries(claims)
}

func deliveries(claims ClaimReply) []string {
	list := []string{}
	for _, m := range claims.Messages {
		list = append(list, m.ID+"#"+m.Receipt)
	}
	return list
}

// through returns the partition of another client.
func (r *scene) through(client redis.UniversalClient) *Partition {
	return NewPartition(newStore(r.T, client), r.partition.Topic(), r.partition.Number())
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// ever is later than any burial of a test, in ms.
const ever = 4e12

// notSlow measures the calls that cases return, on a topic with the group g.
func notSlow(t *testing.T, cases map[string]func(r *scene, g *Group) func()) {
	t.Helper()
	begun := map[string]func(*testing.T, *redistest.Server) (*scripttest.Scene, func()){}
	for name, prepare := range cases {
		begun[name] = func(t *testing.T, server *redistest.Server) (*scripttest.Scene, func()) {
			r := newSceneOn(t, server)
			return r.Scene, prepare(r, r.group("g"))
		}
	}
	scripttest.NotSlow(t, begun)
}

// tornEverywhere tears the last script of arrange in all possible ways, each on a new topic.
func tornEverywhere(t *testing.T, name string, arrange, afterwards func(r *scene)) {
	t.Helper()
	scripttest.TornEverywhere(t, name, func(t *testing.T, server *redistest.Server) (*scripttest.Scene, func()) {
		r := newSceneOn(t, server)
		arrange(r)
		return r.Scene, func() { afterwards(r) }
	})
}
