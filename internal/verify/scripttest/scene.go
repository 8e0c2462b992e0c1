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
func (s *Scene) Ctx() context.Context { return s.T.Context() }

// Watch observes a command on a key, even within scripts, and returns the other
// arguments of each use.
func (s *Scene) Watch(command, key string) (uses func() [][]string) {
	s.T.Helper()
	conn, err := net.Dial("tcp", s.Client.Options().Addr)
	require.NoError(s.T, err)
	s.T.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte("MONITOR\r\n"))
	require.NoError(s.T, err)
	lines := bufio.NewReader(conn)
	next := func() string {
		require.NoError(s.T, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		line, err := lines.ReadString('\n')
		require.NoError(s.T, err)
		return strings.TrimSpace(line)
	}
	require.Equal(s.T, "+OK", next())
	return func() [][]string {
		s.T.Helper()
		end := fmt.Sprint("end of ", rand.Uint64())
		require.NoError(s.T, s.Client.Echo(s.Ctx(), end).Err())
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
func (s *Scene) Expire(group, id string) {
	s.T.Helper()
	require.NoError(s.T, s.Client.ZAddXX(s.Ctx(), s.Partition.Key(script.UnackOf, group), redis.Z{Score: 1000, Member: id}).Err())
}

// dueInBlocked is the due time in a member of blocked.
var dueInBlocked = regexp.MustCompile(`\d{16}`)

// State is everything that the topic has in Redis, as "kind id" -> value. It leaves out the records of publishers and
// claims: tests that send calls again show their effect.
func (s *Scene) State() map[string]string {
	s.T.Helper()
	return s.state(s.exact)
}

// StateFromNow is State with times as FromNow formats them.
func (s *Scene) StateFromNow() map[string]string {
	s.T.Helper()
	return s.state(s.FromNow)
}

func (s *Scene) state(score func(ms float64) string) map[string]string {
	s.T.Helper()
	state := map[string]string{}
	keys, err := s.Client.Keys(s.Ctx(), EscapeGlob(string(s.Partition.KeyNames))+"*").Result()
	require.NoError(s.T, err)
	for _, key := range keys {
		kind := strings.TrimPrefix(key, string(s.Partition.KeyNames)+":")
		if kind == "publishers" || strings.HasPrefix(kind, "claims:") {
			continue
		}
		for field, value := range s.contents(key, score) {
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
func (s *Scene) Contents(key string) map[string]string {
	s.T.Helper()
	return s.contents(key, s.exact)
}

func (s *Scene) contents(key string, score func(ms float64) string) map[string]string {
	s.T.Helper()
	contents := map[string]string{}
	kind, err := s.Client.Type(s.Ctx(), key).Result()
	require.NoError(s.T, err)
	switch kind {
	case "hash":
		contents, err = s.Client.HGetAll(s.Ctx(), key).Result()
		require.NoError(s.T, err)
	case "set":
		members, err := s.Client.SMembers(s.Ctx(), key).Result()
		require.NoError(s.T, err)
		for _, member := range members {
			contents[member] = "member"
		}
	case "zset":
		entries, err := s.Client.ZRangeWithScores(s.Ctx(), key, 0, -1).Result()
		require.NoError(s.T, err)
		for _, entry := range entries {
			contents[entry.Member.(string)] = score(entry.Score)
		}
	default:
		contents[""] = kind
	}
	return contents
}

// Now is the time by Redis's clock.
func (s *Scene) Now() time.Time {
	s.T.Helper()
	now, err := s.Client.Time(s.Ctx()).Result()
	require.NoError(s.T, err)
	return now
}

// exact formats a score, that of a message in line after "in line".
func (s *Scene) exact(ms float64) string {
	s.T.Helper()
	require.Equal(s.T, float64(int64(ms)), ms, "scores are whole milliseconds")
	if ms >= script.InLine {
		return "in line " + s.exact(ms-script.InLine)
	}
	return strconv.FormatInt(int64(ms), 10)
}

// FromNow formats a time within a day of now, and some more, as "now+30s", any other in ms; that of a message in line
// after "in line". It knows only multiples of 5 s: a time counts as such a one until it has come 4.5 s nearer, since a
// test may take a while.
func (s *Scene) FromNow(ms float64) string {
	s.T.Helper()
	if ms >= script.InLine {
		return "in line " + s.FromNow(ms-script.InLine)
	}
	away := time.UnixMilli(int64(ms)).Sub(s.Now())
	if away.Abs() > 25*time.Hour {
		return s.exact(ms)
	}
	const step = 5 * time.Second
	return fmt.Sprintf("now%+ds", 5*int(math.Ceil(float64(away-step/10)/float64(step))))
}

// Keys are all keys of the topic.
func (s *Scene) Keys() []string {
	s.T.Helper()
	keys, err := s.Client.Keys(s.Ctx(), EscapeGlob(strings.TrimSuffix(string(s.Partition.KeyNames), "0}"))+"*").Result()
	require.NoError(s.T, err)
	slices.Sort(keys)
	return keys
}

// RegisterGroups registers more groups.
func (s *Scene) RegisterGroups(more int) {
	s.T.Helper()
	names := make([]any, more)
	for i := range names {
		names[i] = fmt.Sprint("g", i+1)
	}
	require.NoError(s.T, s.Client.SAdd(s.Ctx(), s.Partition.Key(script.Groups, ""), names...).Err())
}

// Store puts messages directly into a set, with calls that are so small that a slow machine makes none time out.
func (s *Scene) Store(set string, count, size int) (ids []string) {
	s.T.Helper()
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
		stored, err := s.Client.Eval(s.Ctx(), source, []string{s.Partition.Key(script.Messages, ""), set}, len(ids), to, size).StringSlice()
		require.NoError(s.T, err)
		ids = append(ids, stored...)
	}
	return ids
}

// DifferentRefs makes messages wait for that many groups, including g. Each message has a
// different list.
func (s *Scene) DifferentRefs(ids []string, groups int) {
	s.T.Helper()
	for n, id := range ids {
		names := make([]string, groups)
		for i := range names {
			names[i] = fmt.Sprintf("%q", fmt.Sprintf("a group of Broadcast, which makes long names itself %9d", (i+n)%groups))
		}
		names[groups/2] = `"g"`
		require.NoError(s.T, s.Client.HSet(s.Ctx(), s.Partition.Key(script.Refs, ""), id, "["+strings.Join(names, ",")+"]").Err())
	}
}

// BusyConsumers are consumers that are alive, say as much as they may, and have claimed 100
// messages each.
func (s *Scene) BusyConsumers(count int) {
	s.T.Helper()
	ids := `["` + strings.Repeat(strings.Repeat("x", 40)+`","`, 99) + `x"]`
	record := fmt.Sprintf(`1 5 [5,"%s",%s,[]]`, strings.Repeat("5 1 ", 100), ids)
	now := s.Now().Add(time.Hour).UnixMilli()
	_, err := s.Client.Pipelined(s.Ctx(), func(pipe redis.Pipeliner) error {
		for i := range count {
			id := fmt.Sprint("c/", i)
			pipe.HSet(s.Ctx(), s.Partition.Key(script.ClaimsOf, "g"), id, record)
			text := fmt.Sprintf(`%d 5 5 {"name":"%s"}`, now, strings.Repeat("x", 3000))
			pipe.HSet(s.Ctx(), s.Partition.Key(script.ConsumersOf, "g"), id, text)
		}
		return nil
	})
	require.NoError(s.T, err)
}

// Deny is a client of a user who may not call a command.
func (s *Scene) Deny(server *redistest.Server, command string) *redis.Client {
	s.T.Helper()
	user := "no-" + command
	redistest.Command(s.T, s.Client, "ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all", "-"+command)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: user, Password: "pw"})
	s.T.Cleanup(func() { _ = client.Close() })
	return client
}

// FailsOnType makes a call while a key of the topic, named without its tag, is of another type: the
// call must name the key and change nothing.
func (s *Scene) FailsOnType(kind string, call func() error) {
	s.T.Helper()
	key := string(s.Partition.KeyNames) + ":" + kind
	require.NoError(s.T, s.Client.Del(s.Ctx(), key).Err())
	require.NoError(s.T, s.Client.Set(s.Ctx(), key, "x", 0).Err())
	before := s.State()
	var wrong *script.WrongTypeError
	require.ErrorAs(s.T, call(), &wrong)
	assert.Equal(s.T, key, wrong.Key)
	assert.Equal(s.T, before, s.State())
}

// Retried is a message with the key k that 100 groups have in retry, or half of them as a
// dead message.
func (s *Scene) Retried(half bool) {
	s.T.Helper()
	s.RegisterGroups(99)
	id, p := fmt.Sprintf("%026d:k", 1), s.Partition
	names := []string{`"g"`}
	pipe := s.Client.Pipeline()
	pipe.HSet(s.Ctx(), p.Key(script.Messages, ""), id, "body")
	pipe.HSet(s.Ctx(), p.Key(script.MessageKeys, ""), "k", id)
	for n := range 99 {
		g := fmt.Sprint("g", n+1)
		names = append(names, fmt.Sprintf("%q", g))
		pipe.HSet(s.Ctx(), p.Key(script.AttemptsOf, g), id, "7/3/3")
		if half && n%2 == 0 {
			pipe.ZAdd(s.Ctx(), p.Key(script.DeadOf, g), redis.Z{Score: 1, Member: id})
			continue
		}
		pipe.ZAdd(s.Ctx(), p.Key(script.QueueOf, g), redis.Z{Score: 1, Member: id})
		pipe.HSet(s.Ctx(), p.Key(script.NackMetadataOf, g), id, "changed")
	}
	pipe.ZAdd(s.Ctx(), p.Key(script.UnackOf, "g"), redis.Z{Score: 1, Member: id})
	pipe.HSet(s.Ctx(), p.Key(script.Refs, ""), id, "["+strings.Join(names, ",")+"]")
	_, err := pipe.Exec(s.Ctx())
	require.NoError(s.T, err)
}
