package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

var modelSteps = flag.Int("model.steps", 15_000, "how many random operations the model test makes")

// TestModel makes random operations on the scripts, in a real Redis, and on package store, which
// defines their meaning. After each operation, the answers, the notifications and all data must be
// the same. The scripts use the clock of the test, so times are compared to the microsecond.
func TestModel(t *testing.T) {
	const perRun = 100
	client := redistest.Shared(t).Client(t)
	client.AddHook(testClock{behind: map[string]string{}})
	require.NoError(t, flag.Set("rapid.checks", fmt.Sprint(max(1, *modelSteps/perRun))))
	require.NoError(t, flag.Set("rapid.steps", fmt.Sprint(perRun)))
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		p := newStore(t, client).Topic(fmt.Sprintf("%d-%d", time.Now().UnixNano(), run)).Partition(0)
		m := newTrial(rt, sceneOf(t, client, p))
		rt.Repeat(map[string]func(*rapid.T){"": func(*rapid.T) { m.check() }, "step": m.step})
		keys := client.Keys(t.Context(), string(p.KeyNames)+"*").Val()
		client.Del(t.Context(), append(keys, p.Channel(), m.scene.stream().Key)...)
	})
}

// trial is one run on a new topic.
type trial struct {
	t        *rapid.T
	scene    *scene
	real     *Partition
	model    *store.Partition
	now      int64               // µs
	notices  []string            // sent by the model since the last check
	ids      int                 // number of messages so far
	numbers  map[string]int64    // the last number of each publisher and consumer
	receipts map[string][]string // the deliveries of each message to each group
	relayed  []string            // ids in the stream
	calls    []func()            // the last calls, which may be repeated
}

// trialGroups are the names of groups in a trial.
var trialGroups = []string{"g", "h", "i"}

func newTrial(t *rapid.T, s *scene) *trial {
	topic := store.NewTopic()
	m := &trial{
		t: t, scene: s, real: s.partition, model: topic.Partition(0),
		numbers: map[string]int64{}, receipts: map[string][]string{},
	}
	topic.Notify = func(_ int, n store.Notice) { m.notices = append(m.notices, textOf(n)) }
	m.advance(1_700_000_000_000_000) // before now: BuryAny takes the time of the server
	return m
}

// operation is an operation of a trial that needs something of a kind, "" for nothing.
type operation struct {
	name, needs string
	run         func(*rapid.T)
}

// operations are in the order of how often rapid is to choose them: it prefers the first.
func (t *trial) operations() []operation {
	return []operation{
		{"push", "", t.push},
		{"claim", "groups", t.claim},
		{"due", "", t.until},
		{"nack", "unack", t.nack},
		{"ack", "unack", t.ack},
		{"wait", "", t.wait},
		{"push", "", t.push},
		{"claim", "", t.claim},
		{"send again", "", t.again},
		{"cancel", "messages", t.cancel},
		{"due", "", t.until},
		{"extend", "unack", t.extend},
		{"release", "unack", t.release},
		{"bury", "unack", t.bury},
		{"requeue", "dead", t.requeue},
		{"discard", "dead", t.discard},
		{"reschedule", "messages", t.reschedule},
		{"relay", "unack", t.relay},
		{"limit", "groups", t.limit},
		{"pause", "", t.pause},
		{"resume", "", t.resume},
		{"register", "", t.register},
		{"expire", "", t.expire},
		{"heartbeat", "", t.heartbeat},
		{"leave", "", t.leave},
		{"bury any", "", t.buryAny},
		{"cancel scheduled", "", t.cancelScheduled},
		{"reschedule waiting", "", t.rescheduleWaiting},
		{"retire", "groups", t.retire},
		{"end", "groups", t.end},
		{"forget", "", t.forget},
		{"restore", "", t.restore},
	}
}

// step makes one operation that has something to act on.
func (t *trial) step(rt *rapid.T) {
	has := map[string]bool{"": true}
	for field := range t.model.State() {
		kind, _, _ := strings.Cut(field, " ")
		kind, _, _ = strings.Cut(kind, ":")
		has[kind] = true
	}
	ready := slices.DeleteFunc(t.operations(), func(o operation) bool { return !has[o.needs] })
	names := make([]string, len(ready))
	runs := map[string]func(*rapid.T){}
	for i, o := range ready {
		names[i], runs[o.name] = o.name, o.run
	}
	runs[draw(rt, "operation", names...)](rt)
}

// do makes a call on both sides. It may be sent again: its reply may have been lost.
func (t *trial) do(call func()) {
	call()
	t.calls = append(t.calls[max(0, len(t.calls)-5):], call)
}

func (t *trial) again(rt *rapid.T) {
	if len(t.calls) == 0 {
		rt.Skip("nothing was sent")
	}
	t.calls[rapid.IntRange(0, len(t.calls)-1).Draw(rt, "call")]()
}

func (t *trial) must(err error)     { require.NoError(t.t, err) }
func (t *trial) same(a, b any)      { require.Equal(t.t, a, b) }
func (t *trial) list(a, b []string) { t.same(strings.Join(a, " "), strings.Join(b, " ")) }

func draw[T any](rt *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(rt, label)
}

// group returns a new Group, which knows no other groups. So a claim must first read them, and
// messages that have become due are for the registered groups.
func (t *trial) group(name string) *Group { return t.real.Group(name) }

// advance advances the clock of both sides by some µs.
func (t *trial) advance(us int64) {
	t.now += us
	t.must(t.scene.Client.Set(t.scene.Ctx(), "model:clock", t.now, 0).Err())
}

// wait advances the clock. Less than a day passes in a run, so that no record of a call expires.
func (t *trial) wait(rt *rapid.T) {
	t.advance(draw[int64](rt, "µs", 1, 500, 1_000, 1_999, 700_000, 9_000_000, 70_000_000))
}

// until advances the clock to about one of the next due times or deadlines in the data.
func (t *trial) until(rt *rapid.T) {
	var times []int64
	for field, value := range t.model.State() {
		kind, _, _ := strings.Cut(field, " ")
		kind, _, _ = strings.Cut(kind, ":")
		var ms int64
		if _, err := fmt.Sscan(value, &ms); err == nil && kind != "messages" && ms*1000 > t.now+1 && ms*1000 < t.now+600_000_000 {
			times = append(times, ms*1000)
		}
	}
	if len(times) == 0 {
		rt.Skip("nothing comes")
	}
	slices.Sort(times)
	times = times[:min(4, len(times))]
	t.advance(draw(rt, "time", times...) + draw[int64](rt, "µs", -1, 0, 1, 999) - t.now)
}

// check compares all that Redis has with the model.
func (t *trial) check() {
	t.must(t.model.Check())
	t.same(t.model.State(), t.state())
	received, err := t.scene.Client.LRange(t.scene.Ctx(), t.real.Channel(), 0, -1).Result()
	t.must(err)
	if len(received) > 0 {
		t.must(t.scene.Client.Del(t.scene.Ctx(), t.real.Channel()).Err())
	}
	slices.Sort(received) // a cancel wakes groups in any order
	slices.Sort(t.notices)
	t.list(t.notices, received)
	t.notices = nil
}

// state returns all data of the topic in Redis, in the form of store.Partition.State.
func (t *trial) state() map[string]string {
	state, reads := map[string]string{}, []func(){}
	pipe := t.scene.Client.Pipeline()
	for _, k := range []script.Kind{script.Scheduled, script.Messages, script.Groups, script.Refs, script.MessageKeys, script.Dedup, script.Settings, script.AtLimit, script.Expiries} {
		reads = append(reads, t.read(pipe, state, k, t.real.Key(k, ""), k.Name()+" "))
	}
	for _, k := range []script.Kind{script.QueueOf, script.UnackOf, script.AttemptsOf, script.DeadOf, script.ReasonsOf, script.NackMetadataOf, script.ConsumersOf, script.TurnsOf, script.BlockedOf} {
		for _, g := range trialGroups {
			reads = append(reads, t.read(pipe, state, k, t.real.Key(k, g), k.Name()+":"+g+" "))
		}
	}
	_, err := pipe.Exec(t.scene.Ctx())
	t.must(err)
	for _, read := range reads {
		read()
	}
	return state
}

// read returns a function that reads a key once pipe has been executed.
func (t *trial) read(pipe redis.Pipeliner, state map[string]string, k script.Kind, key, prefix string) func() {
	switch ctx := t.scene.Ctx(); k.Type() {
	case "zset":
		entries := pipe.ZRangeWithScores(ctx, key, 0, -1)
		return func() {
			for _, e := range entries.Val() {
				state[prefix+e.Member.(string)] = fmt.Sprintf("%.0f", e.Score)
			}
		}
	case "set":
		members := pipe.SMembers(ctx, key)
		return func() {
			for _, member := range members.Val() {
				state[prefix+member] = "member"
			}
		}
	default:
		fields := pipe.HGetAll(ctx, key)
		return func() {
			for field, value := range fields.Val() {
				field, value = t.plain(k, field, value)
				state[prefix+field] = value
			}
		}
	}
}

// plain returns a field in the form of the model.
func (t *trial) plain(k script.Kind, field, value string) (string, string) {
	words := strings.Fields(value)
	switch k {
	case script.Refs:
		var names []string
		t.must(json.Unmarshal([]byte(value), &names))
		return field, strings.Join(slices.Sorted(slices.Values(names)), ",")
	case script.ConsumersOf: // when it stops counting as alive, and when it was seen
		return field, strings.Join(words[:2], " ")
	case script.Settings:
	default:
		return field, value
	}
	what, name, _ := strings.Cut(field, ":")
	switch what {
	case "paused":
		value = words[0]
	case "limits":
		value = fmt.Sprint(strings.Join(words[:3], " "), " ", strings.Contains(value, `"halts":true`))
	case "retired":
		what, value = "tombstone", cmp.Or(strings.Join(words[1:], " "), "retired")
	}
	return what + " " + name, value
}

// textOf returns a notification as the scripts send it.
func textOf(n store.Notice) string {
	switch {
	case n.Paused:
		return "!" + n.Group
	case n.Claimed:
		return fmt.Sprintf("=%d %d %d %s%s", n.Wait, n.Found, len(n.Group), n.Group, n.Consumer)
	}
	return strings.TrimSpace(fmt.Sprint(n.Wait, " ", n.Group))
}

// drawSome draws some of the messages in a place of one group, and returns their values in the state.
// The place is "scheduled" for all groups.
func (t *trial) drawSome(rt *rapid.T, place string) (group string, ids []string, values map[string]string) {
	found := map[string]map[string]string{}
	for field, value := range t.model.State() {
		where, id, _ := strings.Cut(field, " ")
		if kind, name, _ := strings.Cut(where, ":"); kind == place {
			if found[name] == nil {
				found[name] = map[string]string{}
			}
			found[name][id] = value
		}
	}
	if len(found) == 0 {
		rt.Skip("none in ", place)
	}
	group = draw(rt, "group", slices.Sorted(maps.Keys(found))...)
	values = found[group]
	all := slices.Sorted(maps.Keys(values))
	ids = rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, min(3, len(all)), rapid.ID[string]).Draw(rt, "ids")
	return group, ids, values
}

// testClock is a hook of a client that gives its scripts the time in model:clock, and stores what
// they publish in a list under the name of the channel.
type testClock struct {
	redistest.Hook
	behind map[string]string // the SHA1 of each script -> that of its text after clockHead
}

const clockHead = `
local redis = (function(real)
  return setmetatable({
    call = function(command, ...)
      if command ~= 'TIME' then return real.call(command, ...) end
      local now = real.call('GET', 'model:clock')
      return { string.sub(now, 1, -7), tostring(tonumber(string.sub(now, -6))) }
    end,
    pcall = function(command, ...)
      if command == 'PEXPIRE' then return 1 end -- it would be by the clock of the server
      return real.pcall(command == 'PUBLISH' and 'RPUSH' or command, ...)
    end,
  }, { __index = real })
end)(redis)
`

func (c testClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch args := cmd.Args(); cmd.Name() {
		case "evalsha":
			args[1] = cmp.Or(c.behind[args[1].(string)], "not loaded yet")
		case "eval":
			text := args[1].(string)
			args[1] = clockHead + text
			c.behind[redis.NewScript(text).Hash()] = redis.NewScript(clockHead + text).Hash()
		}
		return next(ctx, cmd)
	}
}
