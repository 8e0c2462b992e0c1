// Package scripttest checks what scripts do to a partition of a topic on a real Redis, and writes what no
// script would write. It knows the keys, and not what queues and operators do with them.
package scripttest

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// Scene is a partition of a topic on a real Redis, for one test only.
type Scene struct {
	T         *testing.T
	Client    *redis.Client
	Partition *script.Partition
}

// Ctx lasts as long as the test.
func (r *Scene) Ctx() context.Context { return r.T.Context() }

// Watch observes a command on a key, even within scripts, and returns the other
// arguments of each use.
func (r *Scene) Watch(command, key string) (uses func() [][]string) {
	r.T.Helper()
	conn, err := net.Dial("tcp", r.Client.Options().Addr)
	require.NoError(r.T, err)
	r.T.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte("MONITOR\r\n"))
	require.NoError(r.T, err)
	lines := bufio.NewReader(conn)
	next := func() string {
		require.NoError(r.T, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		line, err := lines.ReadString('\n')
		require.NoError(r.T, err)
		return strings.TrimSpace(line)
	}
	require.Equal(r.T, "+OK", next())
	return func() [][]string {
		r.T.Helper()
		end := fmt.Sprint("end of ", rand.Uint64())
		require.NoError(r.T, r.Client.Echo(r.Ctx(), end).Err())
		var list [][]string
		for line := next(); !strings.Contains(line, end); line = next() {
			if _, args, found := strings.Cut(line+" ", fmt.Sprintf(`] "%s" "%s" `, command, key)); found {
				list = append(list, strings.Fields(args))
			}
		}
		return list
	}
}

// Expire ends the lease of a message that a group holds.
func (r *Scene) Expire(group, id string) {
	r.T.Helper()
	require.NoError(r.T, r.Client.ZAddXX(r.Ctx(), r.Partition.Key(script.UnackOf, group), redis.Z{Score: 1000, Member: id}).Err())
}

// dueInBlocked is the due time in a member of blocked.
var dueInBlocked = regexp.MustCompile(`\d{16}`)

// State is everything that the topic has in Redis, as "kind id" -> value. It leaves out the records of publishers and
// claims: tests that send calls again show their effect.
func (r *Scene) State() map[string]string {
	r.T.Helper()
	return r.state(r.exact)
}

// StateFromNow is State with times as FromNow formats them.
func (r *Scene) StateFromNow() map[string]string {
	r.T.Helper()
	return r.state(r.FromNow)
}

func (r *Scene) state(score func(ms float64) string) map[string]string {
	r.T.Helper()
	state := map[string]string{}
	keys, err := r.Client.Keys(r.Ctx(), EscapeGlob(string(r.Partition.KeyNames))+"*").Result()
	require.NoError(r.T, err)
	for _, key := range keys {
		kind := strings.TrimPrefix(key, string(r.Partition.KeyNames)+":")
		if kind == "publishers" || strings.HasPrefix(kind, "claims:") {
			continue
		}
		for field, value := range r.contents(key, score) {
			if strings.HasPrefix(kind, "blocked:") {
				field = dueInBlocked.ReplaceAllString(field, " ")
			}
			state[kind+" "+field] = value
		}
	}
	return state
}

// EscapeGlob escapes a text for KEYS.
func EscapeGlob(s string) string {
	return strings.NewReplacer("[", `\[`, "]", `\]`, "*", `\*`, "?", `\?`).Replace(s)
}

// Contents is what a key has, as id -> value.
func (r *Scene) Contents(key string) map[string]string {
	r.T.Helper()
	return r.contents(key, r.exact)
}

func (r *Scene) contents(key string, score func(ms float64) string) map[string]string {
	r.T.Helper()
	contents := map[string]string{}
	kind, err := r.Client.Type(r.Ctx(), key).Result()
	require.NoError(r.T, err)
	switch kind {
	case "hash":
		contents, err = r.Client.HGetAll(r.Ctx(), key).Result()
		require.NoError(r.T, err)
	case "set":
		members, err := r.Client.SMembers(r.Ctx(), key).Result()
		require.NoError(r.T, err)
		for _, member := range members {
			contents[member] = "member"
		}
	case "zset":
		entries, err := r.Client.ZRangeWithScores(r.Ctx(), key, 0, -1).Result()
		require.NoError(r.T, err)
		for _, entry := range entries {
			contents[entry.Member.(string)] = score(entry.Score)
		}
	default:
		contents[""] = kind
	}
	return contents
}

// Now is the time by Redis's clock.
func (r *Scene) Now() time.Time {
	r.T.Helper()
	now, err := r.Client.Time(r.Ctx()).Result()
	require.NoError(r.T, err)
	return now
}

// exact formats a score, that of a message in line after "in line".
func (r *Scene) exact(ms float64) string {
	r.T.Helper()
	require.Equal(r.T, float64(int64(ms)), ms, "scores are whole milliseconds")
	if ms >= script.InLine {
		return "in line " + r.exact(ms-script.InLine)
	}
	return strconv.FormatInt(int64(ms), 10)
}

// FromNow formats a time within a day of now, and some more, as "now+30s", any other in ms; that of a message in line
// after "in line". It knows only multiples of 5 s: a time counts as such a one until it has come 4.5 s nearer, since a
// test may take a while.
func (r *Scene) FromNow(ms float64) string {
	r.T.Helper()
	if ms >= script.InLine {
		return "in line " + r.FromNow(ms-script.InLine)
	}
	away := time.UnixMilli(int64(ms)).Sub(r.Now())
	if away.Abs() > 25*time.Hour {
		return r.exact(ms)
	}
	const step = 5 * time.Second
	return fmt.Sprintf("now%+ds", 5*int(math.Ceil(float64(away-step/10)/float64(step))))
}

// Keys are all keys of the topic.
func (r *Scene) Keys() []string {
	r.T.Helper()
	keys, err := r.Client.Keys(r.Ctx(), EscapeGlob(strings.TrimSuffix(string(r.Partition.KeyNames), "0}"))+"*").Result()
	require.NoError(r.T, err)
	slices.Sort(keys)
	return keys
}

// RegisterGroups registers more groups.
func (r *Scene) RegisterGroups(more int) {
	r.T.Helper()
	names := make([]any, more)
	for i := range names {
		names[i] = fmt.Sprint("g", i+1)
	}
	require.NoError(r.T, r.Client.SAdd(r.Ctx(), r.Partition.Key(script.Groups, ""), names...).Err())
}

// Store puts messages directly into a set, with calls that are so small that a slow machine makes none time out.
func (r *Scene) Store(set string, count, size int) (ids []string) {
	r.T.Helper()
	const source = `
		local ids, body = {}, string.rep('x', tonumber(ARGV[3]))
		for i = ARGV[1] + 1, ARGV[2] do
			local id = string.format('%026d', i)
			ids[#ids + 1] = id
			redis.call('HSET', KEYS[1], id, body)
			redis.call('ZADD', KEYS[2], i, id)
		end
		return ids`
	step := max(1, min(10_000, 8<<20/max(1, size)))
	for len(ids) < count {
		to := min(len(ids)+step, count)
		stored, err := r.Client.Eval(r.Ctx(), source, []string{r.Partition.Key(script.Messages, ""), set}, len(ids), to, size).StringSlice()
		require.NoError(r.T, err)
		ids = append(ids, stored...)
	}
	return ids
}

// DifferentRefs makes messages wait for that many groups, including g. Each message has a
// different list.
func (r *Scene) DifferentRefs(ids []string, groups int) {
	r.T.Helper()
	for n, id := range ids {
		names := make([]string, groups)
		for i := range names {
			names[i] = fmt.Sprintf("%q", fmt.Sprintf("a group of Broadcast, which makes long names itself %9d", (i+n)%groups))
		}
		names[groups/2] = `"g"`
		require.NoError(r.T, r.Client.HSet(r.Ctx(), r.Partition.Key(script.Refs, ""), id, "["+strings.Join(names, ",")+"]").Err())
	}
}

// BusyConsumers are consumers that are alive, say as much as they may, and have claimed 100
// messages each.
func (r *Scene) BusyConsumers(count int) {
	r.T.Helper()
	ids := `["` + strings.Repeat(strings.Repeat("x", 40)+`","`, 99) + `x"]`
	record := fmt.Sprintf(`1 5 [5,"%s",%s,[]]`, strings.Repeat("5 1 ", 100), ids)
	now := r.Now().Add(time.Hour).UnixMilli()
	_, err := r.Client.Pipelined(r.Ctx(), func(pipe redis.Pipeliner) error {
		for i := range count {
			id := fmt.Sprint("c/", i)
			pipe.HSet(r.Ctx(), r.Partition.Key(script.ClaimsOf, "g"), id, record)
			text := fmt.Sprintf(`%d 5 5 {"name":"%s"}`, now, strings.Repeat("x", 3000))
			pipe.HSet(r.Ctx(), r.Partition.Key(script.ConsumersOf, "g"), id, text)
		}
		return nil
	})
	require.NoError(r.T, err)
}

// Deny is a client of a user who may not call a command.
func (r *Scene) Deny(server *redistest.Server, command string) *redis.Client {
	r.T.Helper()
	user := "no-" + command
	redistest.Command(r.T, r.Client, "ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all", "-"+command)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: user, Password: "pw"})
	r.T.Cleanup(func() { _ = client.Close() })
	return client
}

// FailsOnType makes a call while a key of the topic, named without its tag, is of another type: the
// call must name the key and change nothing.
func (r *Scene) FailsOnType(kind string, call func() error) {
	r.T.Helper()
	key := string(r.Partition.KeyNames) + ":" + kind
	require.NoError(r.T, r.Client.Del(r.Ctx(), key).Err())
	require.NoError(r.T, r.Client.Set(r.Ctx(), key, "x", 0).Err())
	before := r.State()
	var wrong *script.WrongTypeError
	require.ErrorAs(r.T, call(), &wrong)
	assert.Equal(r.T, key, wrong.Key)
	assert.Equal(r.T, before, r.State())
}

// Retried is a message with the key k that 100 groups have in retry, or half of them as a
// dead message.
func (r *Scene) Retried(half bool) {
	r.T.Helper()
	r.RegisterGroups(99)
	id, p := fmt.Sprintf("%026d:k", 1), r.Partition
	names := []string{`"g"`}
	pipe := r.Client.Pipeline()
	pipe.HSet(r.Ctx(), p.Key(script.Messages, ""), id, "body")
	pipe.HSet(r.Ctx(), p.Key(script.MessageKeys, ""), "k", id)
	for n := range 99 {
		g := fmt.Sprint("g", n+1)
		names = append(names, fmt.Sprintf("%q", g))
		pipe.HSet(r.Ctx(), p.Key(script.AttemptsOf, g), id, "7/3/3")
		if half && n%2 == 0 {
			pipe.ZAdd(r.Ctx(), p.Key(script.DeadOf, g), redis.Z{Score: 1, Member: id})
			continue
		}
		pipe.ZAdd(r.Ctx(), p.Key(script.QueueOf, g), redis.Z{Score: 1, Member: id})
		pipe.HSet(r.Ctx(), p.Key(script.NackMetadataOf, g), id, "changed")
	}
	pipe.ZAdd(r.Ctx(), p.Key(script.UnackOf, "g"), redis.Z{Score: 1, Member: id})
	pipe.HSet(r.Ctx(), p.Key(script.Refs, ""), id, "["+strings.Join(names, ",")+"]")
	_, err := pipe.Exec(r.Ctx())
	require.NoError(r.T, err)
}
