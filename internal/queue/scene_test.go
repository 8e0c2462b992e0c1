package queue

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
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

func (r *scene) ctx() context.Context { return r.t.Context() }

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
	handler := newTestHandler(r.t)
	l := g.Listen(consumer, handler)
	r.t.Cleanup(l.Close)
	require.Equal(r.t, Hint{Opened: true}, handler.next(), "a new subscription counts as a hint")
	return handler.next
}

// testHandler keeps what it hears.
type testHandler struct {
	t        *testing.T
	hints    chan Hint
	failures chan error
}

func newTestHandler(t *testing.T) *testHandler {
	return &testHandler{t: t, hints: make(chan Hint, 100), failures: make(chan error, 100)}
}

func (e *testHandler) OnHint(hint Hint)  { e.hints <- hint }
func (e *testHandler) OnError(err error) { e.failures <- err }

func (e *testHandler) next() Hint {
	e.t.Helper()
	return receive(e.t, e.hints)
}

func (e *testHandler) failure() error {
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

// watch observes a command on a key, even within scripts, and returns the other
// arguments of each use.
func (r *scene) watch(command, key string) (uses func() [][]string) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.client.Options().Addr)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte("MONITOR\r\n"))
	require.NoError(r.t, err)
	lines := bufio.NewReader(conn)
	next := func() string {
		require.NoError(r.t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		line, err := lines.ReadString('\n')
		require.NoError(r.t, err)
		return strings.TrimSpace(line)
	}
	require.Equal(r.t, "+OK", next())
	return func() [][]string {
		r.t.Helper()
		end := fmt.Sprint("end of ", rand.Uint64())
		require.NoError(r.t, r.client.Echo(r.ctx(), end).Err())
		var list [][]string
		for line := next(); !strings.Contains(line, end); line = next() {
			if _, args, found := strings.Cut(line+" ", fmt.Sprintf(`] "%s" "%s" `, command, key)); found {
				list = append(list, strings.Fields(args))
			}
		}
		return list
	}
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

// expire ends the lease of a message that a group holds.
func (r *scene) expire(g *Group, id string) {
	r.t.Helper()
	require.NoError(r.t, r.client.ZAddXX(r.ctx(), r.partition.names.keyOf(unackOf, g.name), redis.Z{Score: 1000, Member: id}).Err())
}

// state is everything that the topic has in Redis, as "kind id" -> value. Times are in
// whole seconds from Redis's now. It leaves out the records of publishers and claims:
// tests that send calls again show their effect.
func (r *scene) state() map[string]string {
	r.t.Helper()
	state := map[string]string{}
	keys, err := r.client.Keys(r.ctx(), escapeGlob(string(r.partition.names))+"*").Result()
	require.NoError(r.t, err)
	for _, key := range keys {
		kind := strings.TrimPrefix(key, string(r.partition.names)+":")
		if kind == "publishers" || strings.HasPrefix(kind, "claims:") {
			continue
		}
		for field, value := range r.contents(key) {
			state[kind+" "+field] = value
		}
	}
	return state
}

func escapeGlob(s string) string {
	return strings.NewReplacer("[", `\[`, "]", `\]`, "*", `\*`, "?", `\?`).Replace(s)
}

func (r *scene) contents(key string) map[string]string {
	r.t.Helper()
	contents := map[string]string{}
	kind, err := r.client.Type(r.ctx(), key).Result()
	require.NoError(r.t, err)
	switch kind {
	case "hash":
		contents, err = r.client.HGetAll(r.ctx(), key).Result()
		require.NoError(r.t, err)
	case "set":
		members, err := r.client.SMembers(r.ctx(), key).Result()
		require.NoError(r.t, err)
		for _, member := range members {
			contents[member] = "member"
		}
	case "zset":
		entries, err := r.client.ZRangeWithScores(r.ctx(), key, 0, -1).Result()
		require.NoError(r.t, err)
		for _, entry := range entries {
			contents[entry.Member.(string)] = r.score(entry.Score)
		}
	default:
		contents[""] = kind
	}
	return contents
}

func (r *scene) now() time.Time {
	r.t.Helper()
	now, err := r.client.Time(r.ctx()).Result()
	require.NoError(r.t, err)
	return now
}

// score formats a time within a day of now as "now+30s", any other in ms.
func (r *scene) score(ms float64) string {
	r.t.Helper()
	require.Equal(r.t, float64(int64(ms)), ms, "scores are whole milliseconds")
	away := time.UnixMilli(int64(ms)).Sub(r.now())
	if away.Abs() > 24*time.Hour {
		return strconv.FormatInt(int64(ms), 10)
	}
	return fmt.Sprintf("now%+ds", int(away.Round(time.Second).Seconds()))
}

// through is the partition as another client sees it.
func (r *scene) through(client redis.UniversalClient) *Partition {
	return newPartition(newStore(r.t, client), r.partition.topic, r.partition.number)
}

// errOf is the error of a call.
func errOf[T any](_ T, err error) error { return err }

// ever is later than any burial of a test, in ms.
const ever = 4e12
