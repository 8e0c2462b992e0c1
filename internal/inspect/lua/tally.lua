-- tally.lua: count what a partition has for a group. It changes nothing.
--
-- KEYS[1]  queue  zset  id -> due, ms: waiting for the group
-- KEYS[2]  unack  zset  id -> lease deadline, ms
-- KEYS[3]  dead   zset  id -> when buried, ms
-- Returns  { now in ms, queued and due, queued for later, when the first of the due is due or
--          '', when the first of the others is due or '', in delivery, those of them whose lease
--          ran out, the smallest id of the first 1,000 of them or '', dead, when the first was
--          buried or '' }

local queue, unack, dead = KEYS[1], KEYS[2], KEYS[3]
local MOST = 1000
local call = redis.call

local _, now_ms = now_us()

-- The ids of one publisher begin with when they were made. Digits and capitals are in the
-- same order in every locale.
local oldest = ''
for _, id in ipairs(call('ZRANGE', unack, 0, MOST - 1)) do
  if oldest == '' or id < oldest then oldest = id end
end
local first = call('ZRANGEBYSCORE', queue, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, 1)[2]
local later = call('ZRANGEBYSCORE', queue, '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local due = call('ZCOUNT', queue, '-inf', now_ms)
return {
  now_ms, due, call('ZCARD', queue) - due, first or '', later or '',
  call('ZCARD', unack), call('ZCOUNT', unack, '-inf', now_ms), oldest,
  call('ZCARD', dead), call('ZRANGE', dead, 0, 0, 'WITHSCORES')[2] or '',
}
