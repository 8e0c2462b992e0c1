package explore

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// fault is a mistake in a script, and the universe in which the explorer must find it.
type fault struct {
	name     string
	script   string
	old, new string
	universe string
}

var faults = []fault{
	{"a batch sent again is stored again", "push", "if number == batch then", "if false then", "one message"},
	{"a batch that is not stored is not barred", "outcome", "write_record(publishers", "local function nothing() end\nnothing(publishers", "a batch of unknown outcome"},
	{"a batch that is stored is barred", "outcome", "if number == batch and", "if false and", "a batch of unknown outcome"},
	{"a late question bars a later batch", "outcome", "number > batch", "false", "a batch of unknown outcome"},
	{"a late copy of a barred batch is stored", "push", "if string.sub(result .. ' ', 1, #own + 1) ~= own .. ' ' then", "if false then", "a keyed batch of unknown outcome"},
	{"an older batch is stored", "push", "if not number or number > batch then", "if false then", "a key"},
	{"a message's own id counts as the key's holder", "push", "if holder == id then return id end", "", "damage, a key"},
	{
		"a replaced message may be on its way", "push",
		"if holder and redis.call('ZSCORE', scheduled, holder) then", "if holder then", "a key",
	},
	{"a claim sent again takes more", "claim", "if number == request then", "if false then", "one message"},
	{"a late claim takes messages", "claim", "if number > request then", "if false then", "one message"},
	{"a claim sent again goes on after its leases", "lib_claim_again", "over, stopped, bytes = tonumber(held.deadline) <= tonumber(now_ms)", "over, stopped, bytes = false", "one message"},
	{"a smaller claim sent again takes all", "lib_claim_again", "or n >= limit or n > 0 and", "or n > 0 and", "two messages"},
	{"a smaller claim sent again counts what it releases", "lib_claim_again", "id, unseen(held.receipts[i])", "id, confirmed(held.receipts[i])", "two messages"},
	{"a smaller claim sent again keeps all in its record", "claim", "cjson.encode({ held.deadline, batch.details, batch.ids, held.recorded })", "result", "two messages"},
	{"an idle claim leaves no record", "lib_idle", "call('HSET', claims, consumer, request", "call('HGET', claims, consumer, request", "one message"},
	{"an idle claim ignores what is due", "lib_idle", "(not first or first > now_ms)", "true", "one message"},
	{"an idle claim sent again is new", "lib_idle", "tonumber(number) < tonumber(request)", "true", "one message"},
	{"a claim takes messages that are not due", "lib_claim", "'-inf', now_ms,", "'-inf', '+inf',", "one message"},
	{"a claim takes messages claimed before without a free worker", "claim", "n >= free_workers", "false", "one message"},
	{"only one group gets a message", "lib_fan_out", "for _, other in ipairs(audience.queues) do redis.call('ZADD', other, unpack(scores)) end", "", "two groups"},
	{"a claim exceeds the limit", "lib_claim", "capacity = limits.in_flight - redis.call('ZCARD', unack)", "capacity = limits.in_flight", "room for one of two messages"},
	{"a claim that buries makes room and notifies no consumer", "claim", "if #buried > 0 then release_capacity(at_limit, unack, channel, group) end", "", "room for one, two consumers"},
	{"an ack makes room and notifies no consumer", "lib", "if not limit or redis.call('ZCARD', unack) >= (tonumber(limit) or math.huge) then return false end", "if true then return false end", "room for one of two messages"},
	{"a claim ignores other groups", "lib_fan_out", "if complete then", "if true then", "a group joins later"},
	{
		"a claim fans out for groups that it may not know", "lib_fan_out",
		"asof > 0 and asof <= now_ms and asof - 1 or -math.huge", "math.huge", "a group joins later",
	},
	{"one delivery more than the limit", "lib", "seen + unsure < max", "seen + unsure <= max", "one message, at most 2 deliveries"},
	{"no token", "lib", "holds[i] = leases[i] and", "holds[i] = leases[i] or", "one message"},
	{"an ack counts although another delivery holds the message", "ack", "if holds[i] then", "if redis.call('ZSCORE', unack, id) then", "one message"},
	{"turns: an ack passes on the turn of another delivery", "ack", "if holds[i] then", "if redis.call('ZSCORE', unack, id) then", "an ordering key, two consumers"},
	{"a release counts", "release", "unseen(receipts[i])", "confirmed(receipts[i])", "one message"},
	{"a heartbeat does not count messages handed out", "extend", "if #seen > 0 then", "if false then", "one message"},
	{"a requeue starts the token anew", "requeue", "entry_of(token, 0, 0)", "entry_of(0, 0, 0)", "one message"},
	{"a deferral counts", "nack", "entry = unseen(receipts[i])", "entry = entry", "one message"},
	{"a deferral keeps what a heartbeat has counted", "nack", "entry = unseen(receipts[i])", "entry = entries[i] or unseen(receipts[i])", "one message"},
	{
		"a deferral is buried after the last delivery", "nack", "    else\n      reason = decision == 'bury'",
		"    end\n    if true then\n      reason = decision == 'bury'", "one message, at most 2 deliveries",
	},
	{"a handler's burial is no burial", "nack", "decision == 'bury' and details[i]", "decision == 'bury' and nil", "one message"},
	{"a deferral sent again reports a burial", "nack", "decisions[i] ~= 'defer' and ", "", "one message, at most 2 deliveries"},
	{"a handler's burial is reported for another reason", "nack", "(decisions[i] ~= 'bury' or reason == details[i])", "true", "one message, at most 2 deliveries"},
	{"changed metadata is not kept", "nack", "if metadata[i] ~= '' then", "if false then", "one message"},
	{"any nack of a dead message reports its burial", "nack", "entries[i] == confirmed(receipts[i]) and why", "why", "one message, at most 2 deliveries"},
	{"a burial that is sent again reports no change", "nack", "and why_dead(dead, reasons, id)", "and false", "one message, at most 2 deliveries"},
	{"a dead message is reported as buried for another reason", "bury", "why_dead(dead, reasons, id) ~= why[i] or", "", "one message, at most 2 deliveries"},
	{"refs keep a group that is done", "lib_finish", "if #fields > 0 then redis.call('HSET', refs, unpack(fields)) end", "", "two groups"},
	{"the first group removes the body", "lib_finish", "if not rest then", "if true then", "two groups"},
	{"the last group leaves the body", "lib_finish", "redis.call('HDEL', messages, unpack(unneeded))", "", "one message"},
	{"an ended message keeps its key", "lib_finish", "for _, id in ipairs(unneeded) do free(keys, id) end", "", "a key"},
	{"a dead message keeps its key", "lib", "if key and redis.call('HGET', keys, key) == id then", "if false then", "a key"},
	{"a dead message takes the key of a newer message", "lib", "if key and redis.call('HGET', keys, key) == id then", "if key then", "a key"},
	{"the key of a dead message does not lead to it", "lib", "redis.call('HSET', keys, key, DEAD_MARK .. id)", "redis.call('HDEL', keys, key)", "a key"},
	{"a dead message that has ended leaves its key", "lib", " or holder == DEAD_MARK .. id", "", "a key"},
	{"cancel does not find a dead message", "lib_keyed", "id = string.sub(id, 2)", "id = nil", "a key"},
	{"cancel reports a retry as a first delivery", "lib_keyed", "seen + unsure > 0", "seen + unsure > 9", "a key"},
	{"cancel removes the body of a dead message", "cancel", "if #burials == 0 then\n  call('HDEL', messages", "if true then\n  call('HDEL', messages", "a key, two groups"},
	{"cancel leaves groups in refs", "cancel", "elseif listed then", "elseif false then", "a key, two groups"},
	{"cancel removes a dead message from refs", "cancel", "list_of(burials)", "list_of({ 'x' })", "a key, two groups"},
	{"cancel removes what is dead", "cancel", "if scheduled_at or #zsets > 0 or #burials == 0 then", "if true then", "a key, two groups"},
	{"cancel returns another result when it is sent again", "cancel", "return previous or found", "return found", "a key"},
	{"reschedule returns another result when it is sent again", "reschedule", "return previous or found", "return found", "a key"},
	{"cancel leaves bookkeeping", "cancel", "for _, hash in ipairs(hashes) do call('HDEL', hash, id) end", "", "a key"},
	{"cancel leaves out unregistered groups", "lib_refs", "if not known[name] then groups", "if false then groups", "damage, two groups"},
	{"a window is not heeded", "push", "held or ends and ends * 1000 > now", "held", "a window"},
	{"an ignored message is stored in a window", "push", "if used and duplicates", "if holder and duplicates", "a window"},
	{"an ignored message is not reported", "push", "return false end", "return true end", "a key"},
	{"a window that is over is heeded", "push", "ends * 1000 > now", "true", "a window"},
	{"a batch is refused for its own window", "push", "if holder == id then return id end", "if holder == id then return id, ends end", "damage, a window"},
	{"cancel leaves the window", "cancel", "if window then call('ZREM', dedup, key) end", "", "a window"},
	{"a cancel sent again ends the next window", "cancel", "(not previous or find_by_key(keys, messages, key) == id)", "true", "a window"},
	{"turns: an ack passes none on", "ack", "ordered > 0 and pass_turns", "false and pass_turns", "an ordering key"},
	{"turns: a claim ignores them", "lib_claim_order", "  end\n  return owner and owner ~= id\n", "  end\n  return false\n", "an ordering key"},
	{"turns: a claim takes none", "claim", "if #batch.turns > 0 then", "if false then", "an ordering key"},
	{
		"turns: a nack passes its own on", "nack", "      redis.call('ZADD', queue, int(due), id)\n",
		"      redis.call('ZADD', queue, int(due), id)\n      pass_turns(turns, blocked, queue, { id }, { order_keys[i] })\n", "an ordering key",
	},
	{"turns: a burial passes none on", "nack", "if order_keys[i] and not halts then", "if false then", "an ordering key, at most 1 delivery"},
	{"turns: halts: a nack passes its own on", "nack", "if order_keys[i] and not halts then", "if order_keys[i] then", "an ordering key that halts"},
	{"turns: halts: an operator's burial passes its own on", "bury", "if not halts then passed", "if true then passed", "an ordering key that halts"},
	{"turns: halts: a claim's burial passes its own on", "claim", "local order_key = not batch.halts and order_key_of", "local order_key = order_key_of", "an ordering key that halts"},
	{"turns: halts: a claim takes over that of a dead message", "lib_claim_order", "if not has_turn(owner, batch.halts) then", "if not has_turn(owner, false) then", "an ordering key that halts"},
	{"turns: halts: a claim heals that of a dead message", "claim", "heal(budget.halts)", "heal(false)", "an ordering key that halts"},
	{"turns: halts: a discard passes none on", "discard", "if ordered > 0 and pass_turns(", "if false and pass_turns(", "an ordering key that halts"},
	{"turns: the last in line is next", "lib_order", "'LIMIT', 0, 1)[1]\n", "'LIMIT', 0, 9)\n    place = place[#place]\n", "an ordering key, at most 1 delivery"},
	{"turns: cancel leaves the place in line", "lib_order", "      redis.call('ZREM', blocked, place_of(order_keys[i], score - IN_LINE, id))\n", "", "an ordering key, cancelled"},
	{"turns: cancel passes none on", "cancel", "if postpone(", "if false and postpone(", "an ordering key, cancelled"},
	{"turns: a postponed message keeps its own", "reschedule", "if postpone(", "if false and postpone(", "an ordering key, cancelled"},
	{
		"turns: torn: a place goes before its message", "lib_order",
		"      if due then redis.call('ZADD', queue, due, id) else redis.call('ZREM', queue, id) end\n      redis.call('ZREM', blocked, place_of(order_keys[i], score - IN_LINE, id))\n",
		"      redis.call('ZREM', blocked, place_of(order_keys[i], score - IN_LINE, id))\n      if due then redis.call('ZADD', queue, due, id) else redis.call('ZREM', queue, id) end\n",
		"torn, an ordering key, cancelled",
	},
	{"turns: torn: no claim heals", "claim", "batch.healed = has_turns and heal(budget.halts)", "", "torn, an ordering key"},
	{
		"torn: a claim removes by rank", "lib_claim", "call('ZREM', scheduled, unpack(batch.due, 1, batch.due_count))",
		"call('ZREMRANGEBYRANK', scheduled, 0, batch.due_count - 1)", "torn, two messages",
	},
	{
		"torn: a repeated claim gives what another consumer has", "lib_claim_again", "tonumber(leases[i]) == tonumber(deadline) and ",
		"", "torn, one message",
	},
	{
		"torn: a leased message may also wait", "claim", "not only_leased(held.ids, audience)", "false",
		"torn, one message",
	},
	{
		"torn: a claim lists a message twice", "claim", "not only_leased(ids_of(lost), audience)", "false",
		"torn, two messages",
	},
	{
		"torn: a claim sent again removes before it adds", "lib_claim_again", "  redis.call('HSET', attempts, unpack(back.entries))\n",
		"  redis.call('ZREM', unack, unpack(back.ids))\n  redis.call('HSET', attempts, unpack(back.entries))\n", "torn, one message",
	},
	{
		"torn: a nack removes before it adds", "nack", "    if metadata[i] ~= '' then",
		"    redis.call('ZREM', unack, id)\n    if metadata[i] ~= '' then", "torn, one message",
	},
	{
		"torn: a requeue removes before it adds", "requeue", "    redis.call('ZADD', queue",
		"    redis.call('ZREM', dead, id)\n    redis.call('ZADD', queue", "torn, one message",
	},
	{
		"torn: a push removes the old message first", "push", "    redis.call('HSET', messages, unpack(bodies))\n",
		"    for _, old in pairs(keyed and keyed.replaced or {}) do redis.call('ZREM', scheduled, old) end\n    redis.call('HSET', messages, unpack(bodies))\n",
		"torn, a key taken twice",
	},
	{
		"torn: a push takes the window first", "push", "    redis.call('HSET', messages, unpack(bodies))\n",
		"    if keyed then redis.call('ZADD', dedup, int(due_ms(now, tonumber(ARGV[5]))), key_of(bodies[1])) end\n    redis.call('HSET', messages, unpack(bodies))\n",
		"torn, a window",
	},
	{
		"torn: a push takes the key first", "push", "    redis.call('HSET', messages, unpack(bodies))\n",
		"    if keyed then redis.call('HSET', keys, key_of(bodies[1]), bodies[1]) end\n    redis.call('HSET', messages, unpack(bodies))\n",
		"torn, a key",
	},
}

// sample is how many faults a run without -explore plants.
const sample = 12

// TestTheExplorerFindsFaults plants mistakes in the scripts, one at a time: without -explore a few, chosen at random.
func TestTheExplorerFindsFaults(t *testing.T) {
	client := redistest.New(t).Client(t)
	for n, i := range rand.Perm(len(faults)) {
		f := faults[i]
		sources := Sources()
		require.Equal(t, 1, strings.Count(sources[f.script], f.old), "%q is not exactly once in %s", f.old, f.script)
		if n >= sample && !*exploreFull {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			sources[f.script] = strings.Replace(sources[f.script], f.old, f.new, 1)
			u := universeNamed(f.universe)
			require.NotNil(t, u, "there is no universe %q", f.universe)
			x := New(client, sources, u, Options{States: mostStates, Limit: time.Minute, StopAtFirst: true})
			require.NoError(t, x.Run(t.Context()))
			require.NotEmpty(t, x.violations, "not found in %d states and %d transitions", len(x.nodes), x.transitions)
			t.Logf("found after %d states and %.1f s: %s", len(x.nodes), x.elapsed.Seconds(), x.Violations()[0])
		})
	}
}

func universeNamed(name string) *Universe {
	for _, u := range Universes() {
		if u.Name == name {
			return u
		}
	}
	return nil
}
