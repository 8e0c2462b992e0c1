package languages

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/protocol"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

const vectorFolder = "../../../docs/inside/vectors"

var update = flag.Bool("update", false, "write docs/inside/vectors anew")

// TestVectorsAreWhatTheLibraryDoes keeps docs/inside/vectors in step with the code.
func TestVectorsAreWhatTheLibraryDoes(t *testing.T) {
	for name, vectors := range map[string]any{
		"keys": keyVectors(), "partitions": partitionVectors(), "ids": idVectors(t), "ticks": tickVectors(), "bodies": bodyVectors(t),
		"delays": delayVectors(t), "errors": errorVectors(), "replies": replyVectors(t),
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			encoder := json.NewEncoder(&b)
			encoder.SetEscapeHTML(false)
			encoder.SetIndent("", " ")
			require.NoError(t, encoder.Encode(vectors))
			file := filepath.Join(vectorFolder, name+".json")
			if *update {
				require.NoError(t, os.MkdirAll(vectorFolder, 0o750))
				require.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), b.String(), "go test ./internal/verify/languages -run Vectors -update writes it anew")
		})
	}
}

type keyVector struct {
	Prefix    string            `json:"prefix"`
	Topic     string            `json:"topic"`
	Partition int               `json:"partition"`
	Group     string            `json:"group"`
	Tag       string            `json:"tag"`
	Slot      int               `json:"slot"` // in a Cluster
	Keys      map[string]string `json:"keys"`
}

func keyVectors() (list []keyVector) {
	for _, name := range []struct{ prefix, topic, group string }{
		{"redisdelay", "orders", "billing"},
		{"redisdelay", "orders.close", "mail:eu"},
		{"a:b", "50% {off}: now", "g}h"},
		{"p", "%7D", "ключ"},
		{"p", "заказы 日本", "%"},
		{"p", "}:{", "{x}"},
		{"redisdelay", "0", " "},
	} {
		for _, partition := range []int{0, 1, 2, 3, 7, 64, 255} {
			n := script.NewNames(name.prefix, name.topic, partition)
			v := keyVector{name.prefix, name.topic, partition, name.group, string(n), n.Slot(), map[string]string{}}
			for _, k := range []script.Kind{script.Scheduled, script.MessageKeys, script.QueueOf, script.LanesOf} {
				v.Keys[k.Name()] = n.Key(k, name.group)
			}
			list = append(list, v)
		}
	}
	return list
}

type partitionVector struct {
	Key        string `json:"key"`
	Partitions int    `json:"partitions"`
	Partition  int    `json:"partition"`
}

func partitionVectors() (list []partitionVector) {
	keys := []string{"a", "order-42", "customer 7", "ключ", "日本", strings.Repeat("long", 100), "\x00", " "}
	for n := range 20 {
		keys = append(keys, fmt.Sprint("key-", n))
	}
	for _, key := range keys {
		for _, partitions := range []int{1, 2, 3, 5, 16, 256} {
			list = append(list, partitionVector{key, partitions, queue.PartitionOf(key, partitions)})
		}
	}
	return list
}

type idVector struct {
	ID          string `json:"id"`
	TTLMS       int64  `json:"ttl_ms"`
	OrderingKey string `json:"ordering_key"`
	Key         string `json:"key"`
}

func idVectors(t *testing.T) (list []idVector) {
	const ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	for _, ttl := range []int64{0, 1, 1500, 3_155_760_000_000} {
		for _, ordering := range []string{"", "account-7", "12,3", "ключ", ":~="} {
			for _, key := range []string{"", "k", "order:1", "~5", "=1,x", "ключ"} {
				v := idVector{"", ttl, ordering, key}
				traits := script.Traits{TTL: time.Duration(ttl) * time.Millisecond, OrderingKey: ordering, Key: key}
				v.ID = ulid + traits.String()
				require.Equal(t, traits, script.TraitsOf(v.ID))
				list = append(list, v)
			}
		}
	}
	return list
}

type tickVector struct {
	Topic       string `json:"topic"`
	Schedule    string `json:"schedule"`
	Revision    int64  `json:"revision"`
	NominalMS   int64  `json:"nominal_ms"`
	TTLMS       int64  `json:"ttl_ms"`
	OrderingKey string `json:"ordering_key"`
	ID          string `json:"id"`
}

// tickVectors are the ids of ticks as protocol.md makes them. A test of package periodic compares them with its own.
func tickVectors() (list []tickVector) {
	for _, v := range []tickVector{
		{Topic: "reports", Schedule: "report-eu", Revision: 1_795_000_000_123_456, NominalMS: 1_796_018_400_000},
		{Topic: "reports", Schedule: "report-eu", Revision: 1_795_000_000_123_457, NominalMS: 1_796_018_400_000},
		{Topic: "reports", Schedule: "report-eu", Revision: 1_795_000_000_123_456, NominalMS: 1_796_018_400_001},
		{Topic: "заказы 日本", Schedule: "ключ", Revision: 1, NominalMS: 0},
		{Topic: "syncs", Schedule: "price-sync", Revision: 1_795_000_000_123_456, NominalMS: 1_796_018_402_000, TTLMS: 60_000},
		{Topic: "syncs", Schedule: "a", Revision: 1_795_000_000_123_456, NominalMS: 1_796_018_402_000, OrderingKey: "periodic:a"},
		{Topic: "syncs", Schedule: "a", Revision: 1_795_000_000_123_456, NominalMS: 1_796_018_402_000, TTLMS: 1, OrderingKey: "periodic:a"},
	} {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d", v.Topic, v.Schedule, v.Revision, v.NominalMS))
		id := ulid.MustNew(uint64(v.NominalMS), bytes.NewReader(sum[:]))
		v.ID = id.String() + script.Traits{TTL: time.Duration(v.TTLMS) * time.Millisecond, OrderingKey: v.OrderingKey}.String()
		list = append(list, v)
	}
	return list
}

type bodyVector struct {
	UUID     string            `json:"uuid"`
	Metadata map[string]string `json:"metadata"`
	Payload  []byte            `json:"payload_base64"`
	Body     []byte            `json:"body_base64"`
	// How says whether a publisher has to encode so ("both"), or a consumer only has to decode it.
	How string `json:"how"`
}

func bodyVectors(t *testing.T) (list []bodyVector) {
	for _, uuid := range []string{"", "id", strings.Repeat("u", 31), strings.Repeat("u", 32), strings.Repeat("u", 256)} {
		for _, metadata := range []map[string]string{nil, {"k": "v"}, {"ключ": strings.Repeat("x", 300)}, {"": ""}} {
			for _, payload := range [][]byte{{}, {0, 0xff, 0xc0}, bytes.Repeat([]byte("p"), 256)} {
				list = append(list, bodyVector{uuid, metadata, payload, nil, "both"})
			}
		}
	}
	list = append(list,
		bodyVector{"until", map[string]string{delay.DelayedUntilKey: "2026-11-30T07:00:00Z"}, []byte("x"), nil, "decode"},
		bodyVector{"for", map[string]string{delay.DelayedForKey: "1m30s"}, []byte("x"), nil, "decode"},
		bodyVector{"nil payload", nil, nil, nil, "decode"},
	)
	for i := range list {
		v := &list[i]
		body, err := redisdelay.DefaultMarshaler{}.Marshal("", &message.Message{UUID: v.UUID, Metadata: v.Metadata, Payload: v.Payload})
		require.NoError(t, err)
		v.Body = body
	}
	plain := bodyVector{"names as text", map[string]string{delay.DelayedForKey: "1s"}, []byte("x"), nil, "decode"}
	plain.Body = []byte("\x93\xadnames as text\xc4\x1b\x81\xb6_watermill_delayed_for\xa21s\xc4\x01x")
	return append(list, plain, bodyVector{"str", nil, []byte("x"), []byte("\x93\xa3str\xc0\xa1x"), "decode"})
}

// TestTheLibraryDecodesTheVectors of bodies, too.
func TestTheLibraryDecodesTheVectors(t *testing.T) {
	for _, v := range bodyVectors(t) {
		msg, err := redisdelay.DefaultMarshaler{}.Unmarshal("", v.Body)
		require.NoError(t, err, v.UUID)
		assert.Equal(t, v.UUID, msg.UUID)
		assert.Equal(t, len(v.Metadata), len(msg.Metadata), v.UUID)
		for name, value := range v.Metadata {
			assert.Equal(t, value, msg.Metadata.Get(name), v.UUID)
		}
		assert.True(t, bytes.Equal(v.Payload, msg.Payload), v.UUID)
	}
}

type delayVector struct {
	NowUS   int64 `json:"now_us"` // by Redis's clock
	DelayMS int64 `json:"delay_ms"`
	DueMS   int64 `json:"due_ms"`
}

// delayVectors are what due_ms in lib.lua returns.
func delayVectors(t *testing.T) (list []delayVector) {
	library := ""
	for _, s := range queue.Scripts() {
		if files := s.Files(); files[0].Name == "lib" {
			library = files[0].Text
		}
	}
	require.NotEmpty(t, library)
	client := redistest.Client(t)
	for _, now := range []int64{1_790_000_000_000_000, 1_790_000_000_000_001, 1_790_000_000_000_999, 1_790_000_000_123_456} {
		for _, ms := range []int64{-5, 0, 1, 1500, 3_600_000, 3_155_760_000_000} {
			text := "local NOTIFY = 'PUBLISH'\n" + library + "return int(due_ms(tonumber(ARGV[1]), tonumber(ARGV[2])))"
			due, err := client.Eval(t.Context(), text, nil, now, ms).Int64()
			require.NoError(t, err)
			list = append(list, delayVector{now, ms, due})
		}
	}
	return list
}

type errorVector struct {
	Error string `json:"error"` // as Redis sends it, without the minus
	Class string `json:"class"`
}

// answerError is an error that Redis has answered with.
type answerError string

func (e answerError) Error() string { return string(e) }
func (answerError) RedisError()     {}

func errorVectors() (list []errorVector) {
	for _, text := range []string{
		"NOTSTORED OOM command not allowed when used memory > 'maxmemory'.", "NOTSTORED STALE batch 1 was another one",
		"STALE batch 1 comes after batch 3", "NOSCRIPT No matching script. Please use EVAL.",
		"READONLY You can't write against a read only replica.", "LOADING Redis is loading the dataset in memory",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "CLUSTERDOWN The cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot", "MOVED 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381",
		"NOREPLICAS Not enough good replicas to write.", "BUSY Redis is busy running a script.", "ERR max number of clients reached",
		"ERR Script attempted to execute a write command while the cluster is down and readonly",
		"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
		"OOM command not allowed when used memory > 'maxmemory'.", "NOPERM this user has no permissions to run the 'evalsha' command",
		"NOAUTH Authentication required.", "WRONGPASS invalid username-password pair or user is disabled.",
		"WRONGTYPE Operation against a key holding the wrong kind of value", "ERR unknown command 'EVALSHA'",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", "CROSSSLOT Keys in request don't hash to the same slot",
	} {
		list = append(list, errorVector{text, classOf(answerError(text))})
	}
	return list
}

func classOf(err answerError) string {
	switch {
	case strings.HasPrefix(string(err), "NOTSTORED "):
		return "refused"
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		return "load"
	case redis.HasErrorPrefix(err, "STALE"):
		return "stale"
	case script.Transient(err):
		return "again"
	default:
		return "unknown"
	}
}

// replyVector is a call in a sequence of them, on a server that is empty at first. In replies, null stands for anything.
type replyVector struct {
	Script string   `json:"script"`
	About  string   `json:"about"`
	Keys   []string `json:"keys"`
	Args   []string `json:"args"`
	Reply  any      `json:"reply,omitempty"`
	Error  string   `json:"error,omitempty"` // what it begins with
}

func replyVectors(t *testing.T) (list []replyVector) {
	server := redistest.New(t)
	client := server.Client(t)
	d, err := protocol.Describe()
	require.NoError(t, err)
	texts, kinds := map[string]string{}, map[string]*script.Script{}
	for _, s := range d.Scripts {
		texts[s.Name] = s.Text
	}
	for _, s := range queue.Scripts() {
		kinds[s.Name()] = s
	}
	names := script.NewNames("vectors", "t", 0)
	for _, v := range replyCalls(string(names) + ":wake:0") {
		if v.Keys = names.Keys(kinds[v.Script], "g"); v.Script == "enlist" {
			v.Keys = []string{"{vectors:topics}"}
		}
		wanted := v.Reply
		v.Reply, v.Error = runVector(t.Context(), client, texts[v.Script], v)
		v.Reply = masked(v.Reply, wanted)
		list = append(list, v)
	}
	return list
}

func runVector(ctx context.Context, client *redis.Client, text string, v replyVector) (reply any, problem string) {
	args := make([]any, len(v.Args))
	for i, arg := range v.Args {
		args[i] = arg
	}
	reply, err := client.Eval(ctx, text, v.Keys, args...).Result()
	var answer redis.Error
	if errors.As(err, &answer) {
		return nil, answer.Error()
	}
	return reply, ""
}

// masked replaces values by nil, those at the indexes that a call names.
func masked(reply, indexes any) any {
	list, is := reply.([]any)
	if at, some := indexes.([]int); some && is {
		for _, i := range at {
			list[i] = nil
		}
	}
	return reply
}

// replyCalls are the calls. In place of replies they have the indexes of values that differ from run to run.
func replyCalls(channel string) []replyVector {
	const a, b, c = "01ARZ3NDEKTSV4RRFFQ69G5FAA:k", "01ARZ3NDEKTSV4RRFFQ69G5FAB:k", "01ARZ3NDEKTSV4RRFFQ69G5FAC:k"
	changing := []int{1, 2, 3} // lease deadline, µs until it is over, due times
	push := func(about, number, duplicates, id, body string) replyVector {
		return replyVector{Script: "push", About: about, Args: []string{"p", number, duplicates, channel, "0", "1", id, "0", body}}
	}
	claim := func(about, request string, differ any) replyVector {
		return replyVector{"claim", about, nil, []string{
			"g", "c", request, "10", "10", "30000", "0", "1048576", channel, "60000", "", "0",
		}, differ, ""}
	}
	call := func(script, about string, args ...string) replyVector {
		return replyVector{Script: script, About: about, Args: args}
	}
	return []replyVector{
		call("enlist", "a topic that is not listed", "t", ""),
		call("enlist", "it is added", "t", "1"),
		call("enlist", "its version is raised", "t", "3"),
		call("enlist", "it does not fall", "t", "2"),
		call("raise", "one partition, no groups", "1", "0", channel),
		push("a batch", "1", "reject", a, "A"),
		push("the same batch again", "1", "reject", a, "A"),
		push("another batch with its number", "1", "reject", b, "B"),
		push("the key is in use", "3", "reject", b, "B"),
		push("an older number", "2", "reject", b, "B"),
		push("a duplicate is ignored", "4", "ignore", b, "B"),
		call("push", "due at a time, in the year 2100",
			"p", "5", "reject", channel, "0", "1", "01ARZ3NDEKTSV4RRFFQ69G5FAE", "@4102444800000", "E"),
		call("put", "a publisher without a record", "new", "1", channel, "1", "01ARZ3NDEKTSV4RRFFQ69G5FAD", "D", "1", "0"),
		claim("a group that is not registered", "1", []int{1}),
		call("register", "a new group", "g", "1000", "0", ""),
		call("register", "a known group", "g", "1000", "0", ""),
		call("register", "one more than there may be", "h", "1", "0", ""),
		claim("what is due", "1", changing),
		claim("the same request again", "1", changing),
		claim("an older request", "0", []int{1}),
		call("extend", "the current delivery", "30000", "g", "c", "60000", "", a, "1", "1"),
		call("extend", "another delivery", "30000", "g", "c", "60000", "", a, "7/0/0", "1"),
		call("nack", "the handler buries it", "g", channel, "0", a, "1", "bury", "broken", ""),
		call("nack", "the same again", "g", channel, "0", a, "1", "bury", "broken", ""),
		call("ack", "a dead letter", "g", channel, a),
		push("a dead letter has lost its key", "6", "reject", c, "C"),
		claim("the next one", "2", changing),
		call("release", "no handler has seen it", "g", channel, c, "1", "0", "0"),
		claim("it is due at the time that release named, with a higher fence", "3", []int{1, 2}),
		call("nack", "its delivery was another one", "g", channel, "0", c, "1", "", "1000", ""),
		call("ack", "it is done", "g", channel, c),
		call("ack", "once more", "g", channel, c),
		call("cancel", "no message has the key", "caller", "1", "0", "key", "nothing", channel),
		call("leave", "the consumer ends", "c", "g", "over"),
		call("unrecord", "the publisher ends", "p"),
	}
}
