package explore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Sources returns the sources of the scripts that the explorer calls, by name. A planted fault
// changes them.
func Sources() map[string]string {
	loaded := map[string]string{}
	called := []string{
		"push", "outcome", "claim", "ack", "nack", "extend", "release", "bury", "requeue", "discard", "cancel", "reschedule", "register",
	}
	for _, s := range queue.Scripts() {
		if slices.Contains(called, s.Name()) {
			for _, file := range s.Files() {
				loaded[file.Name] = file.Text
			}
		}
	}
	return loaded
}

// runnerHead replaces redis.call in the scripts after it, to record their writes.
const runnerHead = `
local real, writes = redis, {}
local reads = {}
for command in string.gmatch([[TIME GET HGET HMGET HLEN HEXISTS HSTRLEN HKEYS HGETALL HRANDFIELD ZMSCORE
  ZSCORE ZRANGE ZRANGEBYSCORE ZRANGEBYLEX ZRANDMEMBER ZCARD ZCOUNT SMEMBERS SISMEMBER SMISMEMBER SCARD EXISTS TYPE PTTL
  PUBLISH SPUBLISH INFO]], '%S+') do reads[command] = true end
local function note(...)
  if reads[(...)] then return end
  local write = { ... }
  for i = 1, #write do
    if type(write[i]) == 'number' then write[i] = string.format('%.17g', write[i]) end
  end
  writes[#writes + 1] = write
end
local redis = setmetatable({
  call = function(...)
    note(...)
    return real.call(...)
  end,
  pcall = function(...)
    note(...)
    return real.pcall(...)
  end,
}, { __index = real })
local scripts = {}
`

// runnerTail restores a state, runs some calls on it, and returns each call's answer and
// writes. Between calls it restores the keys that were written.
const runnerTail = `
local at = 0
local function take() at = at + 1; return ARGV[at] end
local function list()
  local values = {}
  for i = 1, tonumber(take()) do values[i] = take() end
  return values
end
local function snapshot(keys)
  local found = {}
  for _, key in ipairs(keys) do
    local kind = real.call('TYPE', key).ok
    if kind == 'hash' then found[#found + 1] = { key, real.call('HGETALL', key) } end
    if kind == 'zset' then found[#found + 1] = { key, real.call('ZRANGE', key, 0, -1, 'WITHSCORES') } end
    if kind == 'set' then found[#found + 1] = { key, real.call('SMEMBERS', key) } end
    if kind == 'string' then found[#found + 1] = { key, { real.call('GET', key) } } end
  end
  return found
end
local keys, verify, before, results = list(), take(), {}, {}
for i = 1, tonumber(take()) do
  local command = list()
  before[command[2]] = command
end
real.call('DEL', unpack(keys))
for _, command in pairs(before) do real.call(unpack(command)) end
for i = 1, tonumber(take()) do
  local script, script_keys, script_args = take(), list(), list()
  writes = {}
  local ok, reply = pcall(scripts[script], script_keys, script_args)
  if type(reply) == 'table' and reply.err then ok, reply = false, reply.err end
  results[i] = { ok and 1 or 0, ok and reply or tostring(reply), writes, verify == '1' and snapshot(keys) or {} }
  local restored = {}
  for _, write in ipairs(writes) do
    local key = write[2]
    if not restored[key] then
      restored[key] = true
      real.call('DEL', key)
      if before[key] then real.call(unpack(before[key])) end
    end
  end
end
return results
`

// withLibraries returns a script after its libraries.
func withLibraries(sources map[string]string, name string) string {
	text := ""
	for _, s := range queue.Scripts() {
		if s.Name() == name {
			text = s.Head("PUBLISH")
			for _, file := range s.Files() {
				text += sources[file.Name]
			}
		}
	}
	return text
}

// runner runs calls of the real scripts, each on any state, in its own keys.
type runner struct {
	client *redis.Client
	script *redis.Script
	names  script.KeyNames
	p      *protocol
}

func newRunner(client *redis.Client, sources map[string]string, name string, u *Universe) *runner {
	var b strings.Builder
	b.WriteString(runnerHead)
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if !strings.HasPrefix(name, "lib") {
			fmt.Fprintf(&b, "scripts['%s'] = function(KEYS, ARGV)\n%s\nend\n", name, withLibraries(sources, name))
		}
	}
	b.WriteString(runnerTail)
	tag := script.NewKeyNames("explore", name, 0)
	return &runner{client: client, script: redis.NewScript(b.String()), names: tag, p: newProtocol(tag, u)}
}

// call is a call of a script. Its keys have no tag.
type call struct {
	script string
	keys   []string
	args   []string
}

// outcome is the answer to a call, and its writes.
type outcome struct {
	failed   string // the error, if there was one
	reply    any
	effects  []effect
	snapshot state // nil unless asked for
}

// run makes each call on the same state.
func (r *runner) run(ctx context.Context, s state, calls []call, verify bool) ([]outcome, error) {
	args := r.begin(s, verify)
	args = append(args, len(calls))
	for _, c := range calls {
		args = append(args, c.script, len(c.keys))
		for _, key := range c.keys {
			args = append(args, string(r.names)+":"+key)
		}
		args = append(args, len(c.args))
		for _, arg := range c.args {
			args = append(args, r.p.long(arg))
		}
	}
	reply, err := r.script.Run(ctx, r.client, nil, args...).Slice()
	if err != nil {
		return nil, err
	}
	outcomes := make([]outcome, len(calls))
	for i := range outcomes {
		outcomes[i] = r.outcome(reply[i].([]any), verify)
	}
	return outcomes, nil
}

// begin lists the keys to clear and the commands that put the state into Redis.
func (r *runner) begin(s state, verify bool) []any {
	keys := r.p.allKeys()
	args := make([]any, 0, 200)
	args = append(args, len(keys))
	for _, key := range keys {
		args = append(args, string(r.names)+":"+key)
	}
	flag := "0"
	if verify {
		flag = "1"
	}
	args = append(args, flag)
	count := len(args)
	args = append(args, 0)
	s = s.redis()
	for len(s) > 0 {
		key := s[0].key
		entries := s.all(key)
		s = s[len(entries):]
		args[count] = args[count].(int) + 1
		args = append(args, r.restore(key, entries)...)
	}
	return args
}

func (r *runner) restore(key string, entries state) []any {
	command := []any{0, "HSET", string(r.names) + ":" + key}
	switch typeOf(key) {
	case "zset":
		command[1] = "ZADD"
		for _, e := range entries {
			score := r.p.score(e.value)
			if strings.HasPrefix(key, "blocked:") {
				score = "0"
			}
			command = append(command, score, r.p.long(e.field))
		}
	case "set":
		command[1] = "SADD"
		for _, e := range entries {
			command = append(command, e.field)
		}
	default:
		for _, e := range entries {
			command = append(command, r.p.long(e.field), r.p.stored(key, e.value))
		}
	}
	command[0] = len(command) - 1
	return command
}

func (r *runner) outcome(reply []any, verify bool) outcome {
	out := outcome{reply: r.p.shortReply(reply[1])}
	if reply[0].(int64) == 0 {
		out.failed = fmt.Sprint(reply[1])
	}
	for _, write := range reply[2].([]any) {
		if e := r.p.effect(texts(write)); e[0] != "PEXPIRE" {
			out.effects = append(out.effects, e)
		}
	}
	if verify {
		out.snapshot = state{}
		for _, found := range reply[3].([]any) {
			pair := found.([]any)
			r.p.read(&out.snapshot, strings.TrimPrefix(pair[0].(string), string(r.names)+":"), texts(pair[1]))
		}
	}
	return out
}

func texts(reply any) []string {
	values := reply.([]any)
	list := make([]string, len(values))
	for i, value := range values {
		list[i] = fmt.Sprint(value)
	}
	return list
}
