package queue

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestOnlyPublishingFailsWhenRedisIsFull(t *testing.T) {
	server := redistest.New(t, "--maxmemory-policy", "noeviction")
	r := newSceneOn(t, server)
	g := r.group("g")
	for i := range 10 {
		r.push(due(fmt.Sprint(i)))
	}
	r.push(after(keyed(1, "k"), 60))
	redistest.Command(t, r.Client, "CONFIG", "SET", "maxmemory", "1")

	before := r.State()
	_, err := r.partition.Push(t.Context(), Batch{Publisher: "p", Number: 1 << 40, Duplicates: RejectDuplicates, Calls: [][]Message{{due("refused")}}})
	require.True(t, redis.HasErrorPrefix(err, "OOM"), "%v", err)
	require.True(t, script.NotStored(err))
	assert.Equal(t, before, r.State())
	fresh := newSceneOn(t, server)
	_, err = fresh.partition.Push(t.Context(), Batch{Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{due("refused")}}})
	require.True(t, script.NotStored(err))
	assert.Positive(t, fresh.Client.PTTL(t.Context(), fresh.partition.Key(script.Publishers, "")).Val(), "its record stays a day")

	require.NoError(t, g.Register(t.Context()), "a registered group")
	request := r.request("c", 10)
	require.Len(t, r.claimWith(g, request), 10)
	require.Len(t, r.claimWith(g, request), 10, "the same request again")
	require.Empty(t, r.claim(g, "c", 8), "a claim that finds nothing")
	_, err = g.Extend(t.Context(), Heartbeat{Lease: lease}, []Held{handedOut("0", "1")})
	require.NoError(t, err)
	nack(t, g, Nack{Delivery: Delivery{"1", "1"}, Metadata: []byte("changed")})
	_, _, err = g.Nack(t.Context(), 1, []Nack{{Delivery: Delivery{"2", "1"}}})
	require.NoError(t, err)
	nack(t, g, Nack{Delivery: Delivery{"8", "1"}, Delay: time.Minute, Metadata: []byte("changed"), Deferred: true})
	nack(t, g, Nack{Delivery: Delivery{"9", "1"}, Reason: "hopeless"})
	_, err = g.Release(t.Context(), []Release{{Delivery{"3", "1"}, r.Now(), 0}})
	require.NoError(t, err)
	_, err = g.Bury(t.Context(), []Burial{{Delivery{"4", "1"}, "bad"}})
	require.NoError(t, err)
	require.NoError(t, errOf(r.change(rescheduleBy("key", "k", "in", 0))))
	for _, s := range []*script.Script{cancelScript, rescheduleScript} {
		require.Equal(t, []any{"none"}, r.keyedCallFor("nobody's", s, 1, time.Minute)(), s.Name())
	}
	require.ElementsMatch(t, []string{"1#2/1/1", "3#2/0/0", keyed(1, "k") + "#1"}, r.claim(g, "c", 8))
	require.NoError(t, errOf(r.change(cancelBy("key", "k"))))
	ack(t, g, "0", "1#2/1/1", "3#2/0/0", "5", "6", "7")
	assert.Equal(t, map[string]string{
		"groups g":  "member",
		"queue:g 8": "now+60s", "messages 8": "body 8", "nack_metadata:g 8": "changed", "attempts:g 8": "1/0/0",
		"dead:g 9": "now+0s", "messages 9": "body 9", "reasons:g 9": "hopeless", "attempts:g 9": "1/1/0",
		"dead:g 2": "now+0s", "messages 2": "body 2", "reasons:g 2": "not acked in 1 deliveries", "attempts:g 2": "1/1/0",
		"dead:g 4": "now+0s", "messages 4": "body 4", "reasons:g 4": "bad",
	}, r.StateFromNow())
}

// TestGroupsCanBeFreedWhenRedisIsFull, both retired and expired ones, because that frees memory.
func TestGroupsCanBeFreedWhenRedisIsFull(t *testing.T) {
	server := redistest.New(t, "--maxmemory-policy", "noeviction")
	r := newSceneOn(t, server)
	topic := r.topicOf(1)
	names := []string{"retired", "ended", "expires", "forced"}
	for _, name := range names {
		r.expiring(name, time.Minute)
	}
	r.push(due("a"), due("b"))
	for _, name := range names {
		require.Len(t, r.claim(r.partition.Group(name), "c", 10), 2)
	}
	g := r.partition.Group("expires")
	g.options.Expiry = time.Minute
	late := func(end, noticed time.Duration) {
		redistest.Command(t, r.Client, "CONFIG", "SET", "maxmemory", "0")
		r.setExpiry(r.partition, "expires", end, noticed)
		redistest.Command(t, r.Client, "CONFIG", "SET", "maxmemory", "1")
	}
	late(-time.Minute, 0)
	require.NoError(t, topic.Pause(t.Context(), "retired", Pause{Reason: "no memory"}))
	require.NoError(t, topic.Pause(t.Context(), "", Pause{}))
	require.NoError(t, topic.Resume(t.Context(), ""))
	require.NoError(t, g.Register(t.Context()))
	late(-time.Minute, 0)
	r.alive(g, "c", time.Minute)
	require.NoError(t, g.Leave(t.Context(), "c"))
	late(-time.Minute, 0)
	require.Equal(t, "noticed", r.checkExpiry(g))
	late(-50*time.Second, -time.Minute)
	assert.Equal(t, []Ended{{"expires", 2}}, endedBy(t, topic))
	require.NoError(t, topic.End(t.Context(), "ended"))
	_, err := retire(t, topic, "retired", RetireIdle)
	require.NoError(t, err)
	_, err = retire(t, topic, "forced", RetireForced)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"settings retired:retired": "", "settings retired:forced": ""}, r.lives())
}

// TestEndingAGroupWithoutPermissionChangesNothing because half an end would free a live group.
func TestEndingAGroupWithoutPermissionChangesNothing(t *testing.T) {
	server := redistest.Shared(t)
	r := newSceneOn(t, server)
	r.expiring("g", time.Minute)
	r.over(r.partition, "g")
	before := r.lives()
	limited := r.through(r.Deny(server, "srem")).Group("g")
	_, _, err := limited.endExpired(t.Context(), mayEnd, noDeadline)
	require.Error(t, err)
	for _, how := range []Retirement{RetireIdle, RetireForced, retireFollow, retireEnded} {
		require.Error(t, limited.retire(t.Context(), how))
	}
	assert.Equal(t, before, r.lives())
}

func TestAWriteRefusedHalfwayLeavesEachMessageInOnePlace(t *testing.T) {
	server := redistest.New(t)
	scripts := map[string]func(r *scene, g *Group) error{
		"push": func(r *scene, _ *Group) error {
			_, err := r.partition.Push(r.Ctx(), Batch{Publisher: "q", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{due(keyed(3, "new"))}}})
			return err
		},
		"push with a window": func(r *scene, _ *Group) error {
			_, err := r.pushFor(time.Minute, 1<<40, RejectDuplicates, []Message{due(keyed(3, "new"))})
			return err
		},
		"push of a message without a key": func(r *scene, _ *Group) error {
			_, err := r.partition.Push(r.Ctx(), Batch{Publisher: "p", Number: 1 << 40, Duplicates: RejectDuplicates, Calls: [][]Message{{due("new")}}})
			return err
		},
		"claim": func(r *scene, g *Group) error {
			_, err := g.Claim(r.Ctx(), r.request("d", 10))
			return err
		},
		"nack": func(r *scene, g *Group) error {
			_, _, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: Delivery{"held", "1"}, Metadata: []byte("changed")}})
			return err
		},
		"last nack": func(r *scene, g *Group) error {
			_, _, err := g.Nack(r.Ctx(), 1, []Nack{{Delivery: Delivery{"held", "1"}}})
			return err
		},
		"deferral": func(r *scene, g *Group) error {
			_, _, err := g.Nack(r.Ctx(), 1, []Nack{{Delivery: Delivery{"held", "1"}, Metadata: []byte("changed"), Deferred: true}})
			return err
		},
		"handler's burial": func(r *scene, g *Group) error {
			_, _, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: Delivery{"held", "1"}, Metadata: []byte("changed"), Reason: "hopeless"}})
			return err
		},
		"extend": func(r *scene, g *Group) error {
			_, err := g.Extend(r.Ctx(), Heartbeat{Lease: lease}, []Held{handedOut("held", "1")})
			return err
		},
		"release": func(r *scene, g *Group) error {
			_, err := g.Release(r.Ctx(), []Release{{Delivery{"held", "1"}, time.UnixMilli(1), 0}})
			return err
		},
		"ack": func(r *scene, g *Group) error {
			_, err := g.Ack(r.Ctx(), done("held"))
			return err
		},
		"relay": func(r *scene, g *Group) error {
			_, err := g.Relay(r.Ctx(), r.stream(), []Entry{entryOf("held", "1")})
			return err
		},
		"bury": func(r *scene, g *Group) error {
			_, err := g.Bury(r.Ctx(), []Burial{{Delivery{"held", "1"}, "bad"}})
			return err
		},
		"reschedule": func(r *scene, _ *Group) error { return errOf(r.change(rescheduleBy("key", "k", "in", 0))) },
	}
	for name, call := range scripts {
		for _, command := range []string{"zadd", "zrem", "zrange", "hset", "hdel", "hrandfield", "pexpire", "publish", "xadd"} {
			t.Run(name+" without "+command, func(t *testing.T) {
				r := newSceneOn(t, server)
				g := r.group("g")
				r.group("h")
				r.push(due("held"))
				require.Equal(t, []string{"held#1"}, r.claim(g, "c", 1))
				r.push(due("due"), after(keyed(1, "k"), 60))
				client := r.Deny(server, command)
				limited := r.in(r.through(client))
				limited.Client = client
				err := call(limited, limited.partition.Group("g")) // may well succeed

				state, pushed := r.State(), keyed(3, "new")
				if strings.HasSuffix(name, "without a key") {
					pushed = "new"
				}
				if stored := r.places(state, pushed) == 1; strings.HasPrefix(name, "push") && stored != (err == nil) {
					assert.Fail(t, "the error is wrong about whether the message is stored", "%v: %v", err, state)
				} else if taken := state["dedup new"] != ""; name == "push with a window" && taken != stored {
					assert.Fail(t, "a key without its window, or the other way round", "%v: %v", err, state)
				}
				if name == "ack" && (state["unack:g held"] == "") == (state["refs held"] == `["g","h"]`) {
					assert.Fail(t, "half an ack", "%v", state)
				}
				if name == "relay" && state["unack:g held"] == "" && len(r.entries()) != 1 {
					assert.Fail(t, "half a relay", "%v", state)
				}
				for _, id := range []string{"held", "due", keyed(1, "k")} {
					if id == "held" && state["refs held"] == `["h"]` {
						continue // acked
					}
					assert.Equal(t, 1, r.places(state, id), "where %s is: %v", id, state)
				}
				if (r.places(state, pushed) == 1) != (state["messages "+pushed] != "") {
					assert.Fail(t, "half a message is stored", "%v", state)
				}
			})
		}
	}
}

// TestAKeyOfTheWrongTypeIsAnErrorWithoutChanges: the error names the key, and all other keys are unchanged.
func TestAKeyOfTheWrongTypeIsAnErrorWithoutChanges(t *testing.T) {
	const claimed = "scheduled messages groups refs keys queue:g unack:g attempts:g claims:g dead:g reasons:g nack_metadata:g settings at_limit"
	id, held := keyed(1, "k"), Delivery{"held", "1"}
	push := func(r *scene, m Message) error {
		_, err := r.partition.Push(r.Ctx(), Batch{Publisher: "p", Number: 1 << 40, Duplicates: RejectDuplicates, Calls: [][]Message{{m}}})
		assert.True(r.T, script.NotStored(err) || strings.HasSuffix(r.T.Name(), "publishers"), "%v", err)
		return err
	}
	for name, c := range map[string]struct {
		kinds string
		call  func(r *scene, g *Group) error
	}{
		"push":  {"scheduled messages publishers keys dedup", func(r *scene, _ *Group) error { return push(r, due(keyed(2, "l"))) }},
		"put":   {"scheduled messages", func(r *scene, _ *Group) error { return push(r, due("new")) }},
		"claim": {claimed, func(r *scene, g *Group) error { return errOf(g.Claim(r.Ctx(), r.request("c", 10))) }},
		"ack":   {"unack:g refs at_limit", func(r *scene, g *Group) error { return errOf(g.Ack(r.Ctx(), done("held"))) }},
		"relay": {"unack:g refs at_limit", func(r *scene, g *Group) error {
			return errOf(g.Relay(r.Ctx(), r.stream(), []Entry{entryOf("held", "1")}))
		}},
		"nack":     {"unack:g queue:g attempts:g at_limit", func(r *scene, g *Group) error { return errOf3(g.Nack(r.Ctx(), 0, []Nack{{Delivery: held}})) }},
		"release":  {"unack:g queue:g attempts:g at_limit", func(r *scene, g *Group) error { return errOf(g.Release(r.Ctx(), []Release{{Delivery: held}})) }},
		"bury":     {"unack:g dead:g reasons:g at_limit", func(r *scene, g *Group) error { return errOf(g.Bury(r.Ctx(), []Burial{{held, "bad"}})) }},
		"bury any": {"unack:g dead:g reasons:g at_limit", func(r *scene, g *Group) error { return errOf(g.BuryAny(r.Ctx(), "bad", []string{"held"})) }},
		"cancel": {
			"scheduled messages groups refs keys dedup at_limit publishers queue:h unack:h dead:h attempts:h nack_metadata:h",
			func(r *scene, _ *Group) error { return errOf(r.change(cancelBy("key", "k"))) },
		},
		"tick": {"scheduled messages ticks", func(r *scene, _ *Group) error { return errOf(r.tickOn(r.partition, r.revisionOf(0), "", "c1", 100)) }},
	} {
		for _, kind := range strings.Fields(c.kinds) {
			t.Run(name+"/"+kind, func(t *testing.T) {
				r := newScene(t)
				g, h := r.group("g"), r.group("h")
				r.push(due("held"), due(id))
				require.Len(t, r.claim(g, "c", 2), 2)
				require.Len(t, r.claim(h, "c", 2), 2)
				nack(t, h, Nack{Delivery: Delivery{id, "1"}, Delay: time.Minute, Metadata: []byte("changed")})
				r.push(due("due"))
				r.FailsOnType(kind, func() error { return c.call(r, g) })
			})
		}
	}
}

func errOf3[T, U any](_ T, _ U, err error) error { return err }

// places returns the number of sets with a message from which group g may get it.
func (*scene) places(state map[string]string, id string) int {
	count := 0
	for key := range state {
		set, member, _ := strings.Cut(key, " ")
		kind, _, _ := strings.Cut(set, ":")
		switch kind {
		case "scheduled", "queue", "unack", "dead":
			if member == id && !strings.HasSuffix(set, ":h") {
				count++
			}
		}
	}
	return count
}

// TestABatchSentAgainWaitsForReplicasToo sends a batch again over another connection, as
// after a lost reply. WAIT covers only the writes of its own connection.
func TestABatchSentAgainWaitsForReplicasToo(t *testing.T) {
	t.Parallel()
	master, replica := redistest.New(t, "--repl-diskless-sync-delay", "0"), redistest.New(t)
	host, port, err := net.SplitHostPort(master.Addr)
	require.NoError(t, err)
	redistest.Command(t, replica.Client(t), "REPLICAOF", host, port)
	r := newSceneOn(t, master)
	waiting := Batch{
		Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{due("a")}},
		Replicas: 1, ReplicaTimeout: 200 * time.Millisecond,
	}
	require.Eventually(t, func() bool { // until the replica has joined
		waiting.Number++
		_, err := r.partition.Push(t.Context(), waiting)
		return err == nil
	}, time.Minute, 10*time.Millisecond)

	require.NoError(t, replica.Signal(syscall.SIGSTOP))
	defer func() { _ = replica.Signal(syscall.SIGCONT) }()
	waiting.Number++
	unnoticed := waiting
	unnoticed.Replicas = 0
	_, err = r.partition.Push(t.Context(), unnoticed)
	require.NoError(t, err)

	elsewhere := r.through(master.Client(t))
	_, err = elsewhere.Push(t.Context(), waiting)
	var shortfall *script.ReplicationError
	require.ErrorAs(t, err, &shortfall)
	assert.Equal(t, script.ReplicationError{Want: 1}, *shortfall)
}

// cut is a connection that breaks, if requested, when the next reply is read.
type cut struct {
	net.Conn
	next   *atomic.Bool
	broken atomic.Bool
}

func (c *cut) Read(b []byte) (int, error) {
	if c.next.CompareAndSwap(true, false) {
		_, _ = c.Conn.Read(b) // Redis has run the call
		c.broken.Store(true)
	}
	if c.broken.Load() {
		return 0, io.EOF
	}
	return c.Conn.Read(b)
}

// TestABatchResentByTheClientIsRepeatable although the client hides that it has lost a reply.
func TestABatchResentByTheClientIsRepeatable(t *testing.T) {
	t.Parallel()
	r := newScene(t)
	var next atomic.Bool
	options := *r.Client.Options()
	options.MaxRetries, options.ReadTimeout = 2, 20*time.Second // it resends only the call that was cut
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &cut{Conn: conn, next: &next}, err
	}
	client := redis.NewClient(&options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	p, number := r.through(client), int64(0)
	push := func(replicas int, id string) bool {
		number++
		var repeatable atomic.Bool
		batch := Batch{Publisher: "p", Number: number, Duplicates: RejectDuplicates, Calls: [][]Message{{due(id)}}, Repeatable: &repeatable}
		batch.Replicas, batch.ReplicaTimeout = replicas, 20*time.Millisecond
		_, err := p.Push(t.Context(), batch)
		if replicas == 0 {
			require.NoError(t, err)
		}
		return repeatable.Load()
	}
	push(0, keyed(1, "a")) // so that Redis has the scripts
	push(0, "b")
	assert.False(t, push(0, keyed(2, "b")), "by push")
	assert.False(t, push(0, "c"), "by put")
	assert.True(t, push(1, "d"), "with too few replicas")
	next.Store(true)
	assert.True(t, push(0, keyed(3, "c")))
	next.Store(true)
	assert.True(t, push(0, "e"))
	require.False(t, next.Load())
	assert.False(t, push(0, "f"), "each batch counts for itself")
}

func TestUnrecordRemovesTheRecordsOfAPublisher(t *testing.T) {
	r := newScene(t)
	r.push(due("a"))
	key := r.partition.Key(script.Publishers, "")
	require.NoError(t, r.Client.HSet(t.Context(), key, "other", "1 1 x", "p/1", "1 1 x").Err())
	require.NoError(t, r.partition.DeleteRecords(t.Context(), []string{"p", "p/1", "unknown"}))
	fields, err := r.Client.HKeys(t.Context(), key).Result()
	require.NoError(t, err)
	assert.Equal(t, []string{"other"}, fields)
}
