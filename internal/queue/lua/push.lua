-- push.lua: store a batch of Publish calls once, each call whole or not at all.
--
-- KEYS     scheduled, messages, publishers, keys, dedup
-- ARGV[1]  publisher   string
-- ARGV[2]  batch       integer, higher than in any earlier batch
-- ARGV[3]  duplicates  what to do when a key is in use: reject, ignore or replace
-- ARGV[4]  channel     where subscribers listen for notifications
-- ARGV[5]  window      for how many ms the keys of the batch are in use at least; 0: only as long as
--          their messages exist
-- ARGV[6..]  the calls: the number of messages, then for each its id; its delay in ms, or '@' and its
--          due time in ms by Redis's clock; its body
-- Returns  { call, message, ... }: the positions, from 1, of messages that are not stored because
--          their keys are in use; with reject only the first of each call
--
-- NOTSTORED at the start of an error means that nothing of the batch is stored. This is recorded,
-- so that a late copy fails, too, unless Redis refuses the record (no right to write, a full disk).
-- STALE means that the number is not above the last one: either the last batch was a different one
-- with the same number (NOTSTORED STALE), or this batch is older and its outcome is unknown. Any
-- other error proves nothing.

local publisher, batch, duplicates, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local at, call = 6, 1

-- A record has the first id of the batch, without keys, to distinguish the batch from another one
-- with its number. The id is followed by what push returned, or by FAILED and the error.
local own, FAILED = ARGV[at + 1], 'failed '
if #own > 26 then own = string.sub(own, 1, 26) end

local last, last_ms = redis.call('HGET', publishers, publisher), nil
if last then
  local number, ms, result = parse_record(last)
  last_ms = ms
  if not number or number > batch then
    return redis.error_reply('STALE batch ' .. ARGV[2] .. ' comes after batch ' .. tostring(number))
  end
  if number == batch then
    if string.sub(result .. ' ', 1, #own + 1) ~= own .. ' ' then
      return redis.error_reply('NOTSTORED STALE batch ' .. ARGV[2] .. ' was another one')
    end
    result = string.sub(result, #own + 2)
    if string.sub(result, 1, #FAILED) == FAILED then
      return redis.error_reply('NOTSTORED ' .. string.sub(result, #FAILED + 1))
    end
    -- Write the record again for the WAIT that may follow, because WAIT is documented to cover only
    -- the writes of its own connection.
    begin_writes(scheduled)
    redis.call('HSET', publishers, publisher, last)
    local again = {}
    for n in string.gmatch(result, '%d+') do again[#again + 1] = tonumber(n) end
    return again
  end
end

local now, now_ms = now_us()
local dues, bodies, count, first, duplicated = {}, {}, 0, nil, {}
local last_delay, due -- most messages of a batch share them

-- keyed is nil until a message has a key, so that other batches do not pay for its tables.
--   slots     key -> where its message is in bodies
--   before    key -> the id that holds it in Redis, or false
--   till      key -> the end of its window in Redis, or nil
--   windows   how many windows Redis has
--   replaced  key -> the id in scheduled that the batch replaces, unless it is sent again
local keyed
local stage = 'reading' -- then 'adding', then 'removing'

local function put(slot, id, delay, body)
  if delay ~= last_delay then
    local ahead = tonumber(delay)
    local ms = ahead and due_ms(now, ahead) or math.max(tonumber(string.sub(delay, 2)), tonumber(now_ms))
    if not first or ms < first then first = ms end
    last_delay, due = delay, ahead and ahead <= 0 and now_ms or int(ms)
  end
  dues[slot + 1], dues[slot + 2] = due, id
  bodies[slot + 1], bodies[slot + 2] = id, body
end

-- use_of returns the message that holds a key, and whether the key is in use: held, or within a
-- window. The new id itself does not use its key, because a batch may be sent again after its
-- record was lost. An id without a body does not count. Most topics have no windows.
local function use_of(key, id)
  keyed = keyed or { slots = {}, before = {}, till = {}, windows = redis.call('ZCARD', dedup), replaced = {} }
  local holder, held, ends = redis.call('HGET', keys, key)
  if keyed.windows > 0 then ends = redis.call('ZSCORE', dedup, key) or nil end
  keyed.before[key], keyed.till[key] = holder, ends
  if holder == id then return id end
  if holder and redis.call('HEXISTS', messages, holder) == 1 then held = holder end
  return held, held or ends and ends * 1000 > now
end

-- conflict returns the position of the first of n messages from ARGV[from] whose key is in use.
local function conflict(from, n)
  local seen
  for m = 1, n do
    local id = ARGV[from + 3 * m - 3]
    local key = #id > 27 and key_of(id)
    if key then
      seen = seen or {}
      if seen[key] or keyed and keyed.slots[key] then return m end
      local _, used = use_of(key, id)
      if used then return m end
      seen[key] = true
    end
  end
end

-- put_keyed stores a message with a key, and reports whether it has. It replaces the key's last message if that is still in
-- scheduled. With reject, conflict has already found that the key is free.
local function put_keyed(key, id, delay, body)
  local slot = keyed and keyed.slots[key]
  if slot then
    if duplicates == 'replace' then put(slot, id, delay, body) end
    return duplicates == 'replace'
  end
  if duplicates ~= 'reject' then
    local holder, used = use_of(key, id)
    if used and duplicates == 'ignore' then return false end
    if holder and redis.call('ZSCORE', scheduled, holder) then keyed.replaced[key] = holder end
  end
  keyed.slots[key] = count
  put(count, id, delay, body)
  count = count + 2
  return true
end

local function report(m)
  local n = #duplicated
  duplicated[n + 1], duplicated[n + 2] = call, m
end

-- store reads all that it needs before it writes, and it adds before it removes. An interruption
-- between two writes does no harm: it leaves a body without a message, a message without its key or
-- its window, or both the old and the new message. A window without its message would refuse the
-- next attempt, so windows are written after messages.
local function store()
  redis.call('ZCARD', scheduled) -- fails on a key of another type
  while at <= #ARGV do
    local n = tonumber(ARGV[at])
    local used = duplicates == 'reject' and conflict(at + 1, n)
    if used then
      report(used)
    else
      for m = 1, n do
        local i = at + 3 * m - 2
        local id = ARGV[i]
        local key = #id > 27 and key_of(id)
        if key then
          if not put_keyed(key, id, ARGV[i + 1], ARGV[i + 2]) then report(m) end
        else
          put(count, id, ARGV[i + 1], ARGV[i + 2])
          count = count + 2
        end
      end
    end
    at, call = at + 1 + 3 * n, call + 1
  end
  if count > 0 then
    redis.call('HSET', messages, unpack(bodies))
    stage = 'adding'
    redis.call('ZADD', scheduled, unpack(dues))
  end
  if keyed and next(keyed.slots) then
    local holders, untils, replaced = {}, {}, {}
    local window = tonumber(ARGV[5])
    local ms = window > 0 and int(due_ms(now, window))
    for key, slot in pairs(keyed.slots) do
      local n, id, old = #holders, bodies[slot + 1], keyed.replaced[key]
      holders[n + 1], holders[n + 2] = key, id
      if old and old ~= id then replaced[#replaced + 1] = old end
      untils[n + 1], untils[n + 2] = ms, key
    end
    redis.call('HSET', keys, unpack(holders))
    if ms then
      -- First: if the script is interrupted here, the new window must not expire with the old ones.
      redis.pcall('PEXPIRE', dedup, int(ms - now_ms), 'GT')
      redis.call('ZADD', dedup, unpack(untils))
    end
    if #replaced > 0 then
      stage = 'removing'
      redis.call('ZREM', scheduled, unpack(replaced))
      redis.call('HDEL', messages, unpack(replaced))
    end
  end
  local result = own
  if #duplicated > 0 then result = own .. ' ' .. table.concat(duplicated, ' ') end
  write_record(publishers, publisher, ARGV[2], now_ms, result, last_ms)
end

local ok, err = pcall(store)
if not ok then
  local function undo()
    local slots = keyed and keyed.slots or {}
    for key in pairs(slots) do
      local ends = keyed.till[key]
      if ends then
        redis.call('ZADD', dedup, ends, key)
      else
        redis.call('ZREM', dedup, key)
      end
    end
    local ids = {}
    for i = 1, count, 2 do ids[#ids + 1] = bodies[i] end
    redis.call('ZREM', scheduled, unpack(ids))
    redis.call('HDEL', messages, unpack(ids))
    for key in pairs(slots) do
      local holder = keyed.before[key]
      if holder then
        redis.call('HSET', keys, key, holder)
      else
        redis.call('HDEL', keys, key)
      end
    end
  end

  -- If all writes are undone, the error is certain, and the record makes a late copy of the batch
  -- fail. READONLY is returned unchanged, because clients check for it.
  local text = type(err) == 'table' and err.err or tostring(err)
  if string.find(text, '^READONLY') or stage == 'removing' or stage == 'adding' and not pcall(undo) then
    return redis.error_reply(text)
  end
  pcall(begin_writes, scheduled)
  redis.pcall('HSET', publishers, publisher, ARGV[2] .. ' ' .. now_ms .. ' ' .. own .. ' ' .. FAILED .. text)
  may_expire(publishers, redis.pcall('HLEN', publishers), DAY_MS + HOUR_MS)
  return redis.error_reply('NOTSTORED ' .. text)
end

-- Everything is stored, so nothing may fail from here on. To keep dedup small, more expired windows may
-- be removed than the batch has added. Unless dedup is large, it expires with its last window.
if keyed and keyed.windows > 0 then
  local over = redis.pcall('ZRANGEBYSCORE', dedup, '-inf', now_ms, 'LIMIT', 0, count / 2 + 10)
  if #over > 0 then redis.pcall('ZREM', dedup, unpack(over)) end
end
if keyed and tonumber(ARGV[5]) > 0 then
  local last = tonumber(redis.pcall('ZRANGE', dedup, -1, -1, 'WITHSCORES')[2])
  if last then may_expire(dedup, redis.pcall('ZCARD', dedup), int(last - now_ms)) end
end
local head = first and redis.pcall('ZRANGE', scheduled, 0, 0)[1]
for i = 1, count, 2 do
  if bodies[i] == head then
    wake(channel, now, first)
    break
  end
end
return duplicated
