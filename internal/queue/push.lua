-- push.lua: store one batch of Publish calls, each whole or not at all, once.
--
-- KEYS[1]  scheduled   zset    id -> due, ms
-- KEYS[2]  messages    hash    id -> encoded message
-- KEYS[3]  publishers  hash    publisher -> record of its last batch
-- KEYS[4]  keys        hash    message key -> id
-- ARGV[1]  publisher   string
-- ARGV[2]  batch       integer, higher than that of any batch before
-- ARGV[3]  duplicates  what to do when a key is in use: reject, ignore or replace
-- ARGV[4]  channel     where subscribers listen for work
-- ARGV[5..]  the calls: how many messages, then for each id, delay in ms, body
-- Returns  { index, ... }: the calls, from 1, refused since a key is in use

local scheduled, messages, publishers, keys = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local publisher, batch, duplicates, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

-- A key of another type fails before any write: publishers, scheduled and keys are
-- read first, and messages is what is written first.
local last, last_ms, refused = redis.call('HGET', publishers, publisher), nil, ''
if last then
  local number
  number, last_ms, refused = parse_record(last)
  if number >= batch then
    -- Written again for the WAIT that may follow, which by its documentation is about
    -- the writes of its own connection.
    redis.call('ZREM', scheduled, '')
    redis.call('HSET', publishers, publisher, last)
    local again = {}
    if number == batch then
      for index in string.gmatch(refused, '%d+') do again[#again + 1] = tonumber(index) end
    end
    return again
  end
end
redis.call('ZCARD', scheduled)
local now, now_ms = now_us()

local dues, bodies, count, first, refusals = {}, {}, 0, nil, {}
local last_delay, due -- most messages of a batch have the same

local function add(id, delay, body)
  if delay ~= last_delay then
    local ahead = tonumber(delay)
    local ms = due_ms(now, ahead)
    if not first or ms < first then first = ms end
    last_delay, due = delay, ahead <= 0 and now_ms or int(ms)
  end
  dues[count + 1], dues[count + 2] = due, id
  bodies[count + 1], bodies[count + 2] = id, body
  count = count + 2
end

-- store writes what was added. Bodies go first: when the second write is
-- refused, the first is undone, and no half of a message stays behind.
local function store()
  if count == 0 then return end
  redis.call('HSET', messages, unpack(bodies))
  local added = redis.pcall('ZADD', scheduled, unpack(dues))
  if type(added) == 'table' then
    for i = 1, count, 2 do redis.call('HDEL', messages, bodies[i]) end
    return added
  end
  dues, bodies, count = {}, {}, 0
end

-- store_keyed stores a message that carries a key. It takes the place of the
-- key's last message, unless that one is already due and on its way.
local function store_keyed(key, id, delay, body)
  local holder = redis.call('HGET', keys, key)
  if holder and duplicates == 'ignore' then return end
  add(id, delay, body)
  local failure = store()
  if failure then return failure end
  if holder and redis.call('ZREM', scheduled, holder) == 1 then
    redis.call('HDEL', messages, holder)
  end
  redis.call('HSET', keys, key, id)
end

-- conflict tells whether a call of n messages from ARGV[at] has a key in use.
local function conflict(at, n)
  local seen = {}
  for i = at, at + 3 * n - 3, 3 do
    local key = key_of(ARGV[i])
    if key and (seen[key] or redis.call('HEXISTS', keys, key) == 1) then return true end
    if key then seen[key] = true end
  end
  return false
end

-- ours tells whether an id came with this batch. A body that is the same as the id
-- of another message only makes for a needless notification.
local function ours(id)
  for i = 5, #ARGV do
    if ARGV[i] == id then return true end
  end
end

local at, call = 5, 1
while at <= #ARGV do
  local n = tonumber(ARGV[at])
  if duplicates == 'reject' and conflict(at + 1, n) then
    refusals[#refusals + 1] = call
  else
    for i = at + 1, at + 3 * n - 2, 3 do
      local id, delay, body = ARGV[i], ARGV[i + 1], ARGV[i + 2]
      local key, failure = key_of(id), nil
      if key then failure = store_keyed(key, id, delay, body) else add(id, delay, body) end
      if failure then return failure end
    end
  end
  at, call = at + 1 + 3 * n, call + 1
end
local failure = store()
if failure then return failure end

write_record(publishers, publisher, ARGV[2], now_ms, table.concat(refusals, ' '), last_ms)
-- All is stored, so nothing may fail from here on.
if first and ours(redis.pcall('ZRANGE', scheduled, 0, 0)[1]) then wake(channel, now, first) end
return refusals
