-- gauge.lua: count what a partition has, and what it has for each of some groups, for
-- metrics: what survey, tally and alive count that costs no more than a few ranges. It
-- changes nothing.
--
-- KEYS[1]  scheduled  zset  id -> due, ms
-- KEYS[2]  keys       hash  message key -> id that holds it, or the mark and id of a dead letter
-- KEYS[3..]  for each group: queue, unack, dead, consumers
-- Returns  { now in ms, scheduled, due of them, when the first of these is due or '', message
--          keys }, and then for each group
--          { queued and due, queued for later, when the first of the due is due or '', in
--          delivery, those of them whose lease ran out, dead, consumers that are alive, '0' or
--          something else if there are so many consumers that only some were counted }

local scheduled, keys = KEYS[1], KEYS[2]
local STEP = 100 -- consumers, about; each says up to some KiB
local call = redis.call

local _, now_ms = now_us()

local function first_due(zset)
  return call('ZRANGEBYSCORE', zset, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, 1)[2]
end

local function alive(consumers)
  local some, n = call('HSCAN', consumers, '0', 'COUNT', STEP), 0
  for i = 2, #some[2], 2 do
    local till = tonumber(string.match(some[2][i], '^%d+'))
    if till and till > tonumber(now_ms) then n = n + 1 end
  end
  return n, some[1]
end

local reply = { now_ms, call('ZCARD', scheduled), call('ZCOUNT', scheduled, '-inf', now_ms), first_due(scheduled) or '',
  call('HLEN', keys) }
for i = 3, #KEYS, 4 do
  local queue, unack, dead, consumers = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  local due = call('ZCOUNT', queue, '-inf', now_ms)
  local living, cursor = alive(consumers)
  reply[#reply + 1] = {
    due, call('ZCARD', queue) - due, first_due(queue) or '',
    call('ZCARD', unack), call('ZCOUNT', unack, '-inf', now_ms), call('ZCARD', dead), living, cursor,
  }
end
return reply
