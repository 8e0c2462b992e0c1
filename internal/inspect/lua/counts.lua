-- counts.lua: count the messages of a partition, and of some of its groups by state. It changes
-- nothing.
--
-- KEYS     scheduled, messages, keys, dedup; for each group: queue, unack, dead, consumers
-- ARGV[1]  more       '', 'consumers' or 'details'
-- Returns  { now in ms, scheduled, due of them, when the first of these is due or '', messages,
--            message keys, row of a group, ... }
--          with 'details', before the rows: { when the next of the others is due or '', keys within a
--            window, sizes of a sample of the messages }
--          a row: { queued and due, queued for later, in line for their ordering keys, when the first
--            due one is due or '', in delivery, of these with an expired lease, dead }
--          with 'consumers', also in a row: consumers that are alive, '0' unless only some were counted
--          with 'details', also in a row: when the first one queued for later is due or '', the
--            smallest id of the first 1,000 in delivery or '', when the first dead one was buried or ''

local more = ARGV[1]
local MAX_LEASES, SAMPLE = 1000, 20
local STEP = 100 -- consumers, about; each entry has up to some KiB
local call = redis.call

local _, now_ms = now_us()

-- first returns the lowest score within a range, or ''.
local function first(zset, from, to)
  return call('ZRANGEBYSCORE', zset, from, to, 'WITHSCORES', 'LIMIT', 0, 1)[2] or ''
end

-- waiting returns how many members there are, how many of them are due, and when the first of these
-- is due or ''. Most sets are empty most of the time.
local function waiting(zset)
  local size = call('ZCARD', zset)
  local due = size > 0 and call('ZCOUNT', zset, '-inf', now_ms) or 0
  return size, due, due > 0 and first(zset, '-inf', now_ms) or ''
end

local function sample()
  local sizes = {}
  for i, id in ipairs(call('HRANDFIELD', messages, SAMPLE)) do sizes[i] = call('HSTRLEN', messages, id) end
  return sizes
end

local function alive(consumers)
  local some, n = call('HSCAN', consumers, '0', 'COUNT', STEP), 0
  for i = 2, #some[2], 2 do
    local till = tonumber(string.match(some[2][i], '^%d+'))
    if till and till > tonumber(now_ms) then n = n + 1 end
  end
  return n, some[1]
end

-- smallest returns the id that was made first, if one publisher made them: ids begin with a time.
-- Digits and capitals are in the same order in every locale.
local function smallest(unack)
  local id = ''
  for _, other in ipairs(call('ZRANGE', unack, 0, MAX_LEASES - 1)) do
    if id == '' or other < id then id = other end
  end
  return id
end

local size, due, oldest = waiting(scheduled)
local reply = { now_ms, size, due, oldest, call('HLEN', messages), call('HLEN', keys) }
if more == 'details' then
  reply[7] = { first(scheduled, '(' .. now_ms, '+inf'), call('ZCOUNT', dedup, '(' .. now_ms, '+inf'), sample() }
end
for i = EACH_FROM, #KEYS, EACH_WIDTH do
  local queue, unack, dead, consumers = unpack(KEYS, i, i + EACH_WIDTH - 1)
  local queued, ready, since = waiting(queue)
  local in_line = queued > ready and call('ZCOUNT', queue, int(IN_LINE), '+inf') or 0
  local held = call('ZCARD', unack)
  local expired = held > 0 and call('ZCOUNT', unack, '-inf', now_ms) or 0
  local row = { ready, queued - ready - in_line, in_line, since, held, expired, call('ZCARD', dead) }
  if more == 'consumers' then
    row[8], row[9] = alive(consumers)
  elseif more == 'details' then
    row[8], row[9], row[10] = first(queue, '(' .. now_ms, '(' .. int(IN_LINE)), smallest(unack), first(dead, '-inf', '+inf')
  end
  reply[#reply + 1] = row
end
return reply
