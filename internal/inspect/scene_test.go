package inspect

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/notify"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/scripttest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const lease = 30 * time.Second

const mebibyte = 1 << 20

// scene is a topic on a real Redis, for one test only.
type scene struct {
	*scripttest.Scene
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
	p := newStore(t, client).Topic(topic).Partition(0)
	return &scene{Scene: &scripttest.Scene{T: t, Client: client, Partition: p.Partition}, partition: p, number: map[string]int64{}}
}

// newStore returns the tests' queue.Store in a Redis.
func newStore(t *testing.T, client redis.UniversalClient) *queue.Store {
	t.Helper()
	return queue.NewStore(client, "test", observe.Observer{})
}

// group returns a registered group.
func (r *scene) group(name string) *queue.Group {
	r.T.Helper()
	g := r.partition.Group(name)
	require.NoError(r.T, g.Register(r.Ctx()))
	return g
}

var batches int64

// push stores messages as one call of a new publisher.
func (r *scene) push(messages ...queue.Message) {
	r.T.Helper()
	batches++
	refused, err := r.partition.Push(r.Ctx(), queue.Batch{
		Publisher: "p", Number: batches, Duplicates: queue.RejectDuplicates, Calls: [][]queue.Message{messages},
	})
	require.NoError(r.T, err)
	require.Empty(r.T, refused)
}

// due is a message that is due now.
func due(id string) queue.Message { return after(id, 0) }

// after is a message with a delay in seconds.
func after(id string, seconds int64) queue.Message {
	return queue.Message{ID: id, Traits: script.TraitsOf(id), Delay: time.Duration(seconds) * time.Second, Body: []byte("body " + id)}
}

// keyed is an id that carries a message key.
func keyed(n int, key string) string { return fmt.Sprintf("%026d:%s", n, key) }

// request asks for up to limit messages, by a consumer whose workers are all free.
func (r *scene) request(consumer string, limit int) queue.ClaimRequest {
	r.number[consumer]++
	return queue.ClaimRequest{Consumer: consumer, Number: r.number[consumer], Limit: limit, Free: limit, Lease: lease}
}

// claim claims up to limit messages and returns their deliveries as "id#receipt".
func (r *scene) claim(g *queue.Group, consumer string, limit int) []string {
	r.T.Helper()
	return r.claimWith(g, r.request(consumer, limit))
}

func (r *scene) claimWith(g *queue.Group, request queue.ClaimRequest) []string {
	r.T.Helper()
	claims, err := g.Claim(r.Ctx(), request)
	require.NoError(r.T, err)
	return deliveries(claims)
}

func deliveries(claims queue.ClaimReply) []string {
	list := []string{}
	for _, m := range claims.Messages {
		list = append(list, m.ID+"#"+m.Receipt)
	}
	return list
}

// through is the partition as another client sees it.
func (r *scene) through(client redis.UniversalClient) *queue.Partition {
	return queue.NewPartition(newStore(r.T, client), r.partition.Topic(), r.partition.Number())
}

// errOf is the error of a call.
func errOf[T any](_ T, err error) error { return err }

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

// ack acks deliveries, as claim returns them, "id#receipt"; "id" is a first delivery.
func ack(t *testing.T, g *queue.Group, deliveries ...string) {
	t.Helper()
	var done []queue.Done
	for _, delivery := range deliveries {
		id, receipt, _ := strings.Cut(delivery, "#")
		done = append(done, queue.Done{Delivery: queue.Delivery{ID: id, Receipt: cmp.Or(receipt, "1")}})
	}
	acked, err := g.Ack(t.Context(), done)
	require.NoError(t, err)
	require.Empty(t, acked.Stale)
}

func nack(t *testing.T, g *queue.Group, nacks ...queue.Nack) {
	t.Helper()
	stale, _, err := g.Nack(t.Context(), 0, nacks)
	require.NoError(t, err)
	require.Empty(t, stale)
}

// bury makes a message a dead message of a group in its first delivery.
func (r *scene) bury(g *queue.Group, ids ...string) {
	r.T.Helper()
	for _, id := range ids {
		require.Equal(r.T, []string{id + "#1"}, r.claim(g, "c", 1))
		stale, err := g.Bury(r.Ctx(), []queue.Burial{{Delivery: queue.Delivery{ID: id, Receipt: "1"}, Reason: "bad " + id}})
		require.NoError(r.T, err)
		require.Empty(r.T, stale)
	}
}

// topicOf is a topic with some partitions, for this scene only.
func (r *scene) topicOf(partitions int) *queue.Topic {
	r.T.Helper()
	topic := newStore(r.T, r.Client).Topic(r.partition.Topic())
	require.NoError(r.T, topic.EnsureListed(r.Ctx()))
	_, err := topic.RaisePartitions(r.Ctx(), partitions)
	require.NoError(r.T, err)
	return topic
}

// pushWindow stores a batch whose keys are taken for a minute at least, and returns which
// of its calls were rejected.
func (r *scene) pushWindow(number int64, duplicates queue.Duplicates, calls ...[]queue.Message) []int {
	r.T.Helper()
	rejected, err := r.partition.Push(r.Ctx(), queue.Batch{
		Publisher: "p", Number: number, Duplicates: duplicates, Window: time.Minute, Calls: calls,
	})
	require.NoError(r.T, err)
	var list []int
	for _, d := range rejected {
		list = append(list, d.Call)
	}
	return list
}

// notSlow measures the calls that cases return, on a topic with the group g.
func notSlow(t *testing.T, cases map[string]func(r *scene, g *queue.Group) func()) {
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

// tornEverywhere tears the last script of arrange in all ways, each on a new topic.
func tornEverywhere(t *testing.T, name string, arrange, afterwards func(r *scene)) {
	t.Helper()
	scripttest.TornEverywhere(t, name, func(t *testing.T, server *redistest.Server) (*scripttest.Scene, func()) {
		r := newSceneOn(t, server)
		arrange(r)
		return r.Scene, func() { afterwards(r) }
	})
}

// handler receives the hints for a consumer.
type handler chan queue.Hint

func (h handler) OnHint(hint queue.Hint) { h <- hint }
func (handler) OnError(error)            {}

// listen returns a function that waits for the consumer's next hint.
func (r *scene) listen(g *queue.Group, consumer string) (next func() queue.Hint) {
	r.T.Helper()
	hints := make(handler, 100)
	l := g.Listen(consumer, notify.Interval, hints)
	r.T.Cleanup(l.Close)
	next = func() queue.Hint {
		r.T.Helper()
		select {
		case hint := <-hints:
			return hint
		case <-time.After(time.Minute):
			require.FailNow(r.T, "it gets no hint")
		}
		return queue.Hint{}
	}
	require.True(r.T, next().Opened)
	return next
}
