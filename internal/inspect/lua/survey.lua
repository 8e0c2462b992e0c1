-- survey.lua: count what a partition has, whatever the groups. It changes nothing.
--
-- KEYS[1]  scheduled  zset  id -> due, ms
-- KEYS[2]  messages   hash  id -> encoded message
-- KEYS[3]  keys       hash  message key -> id that holds it, or the mark and id of a dead letter
-- KEYS[4]  taken      zset  message key -> until when it is taken, ms
-- Returns  { now in ms, scheduled, due of them, when the first of these is due or '', when the
--          next of the others is due or '', messages, size of each of a sample of them as a
--          list, message keys, keys taken for a window }

local scheduled, messages, keys, taken = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local SAMPLE = 20
local call = redis.call

local _, now_ms = now_us()
local sizes = {}
for i, id in ipairs(call('HRANDFIELD', messages, SAMPLE)) do sizes[i] = call('HSTRLEN', messages, id) end
local first = call('ZRANGEBYSCORE', scheduled, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, 1)[2]
local next = call('ZRANGEBYSCORE', scheduled, '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
return {
  now_ms, call('ZCARD', scheduled), call('ZCOUNT', scheduled, '-inf', now_ms), first or '', next or '',
  call('HLEN', messages), sizes, call('HLEN', keys), call('ZCOUNT', taken, '(' .. now_ms, '+inf'),
}
