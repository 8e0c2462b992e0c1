-- import.lua: store messages of another topic or server under their own ids, each once: imported
-- remembers them, even if they are delivered and acked meanwhile.
--
-- KEYS     scheduled, messages, keys, dedup, imported
-- ARGV[1]  until    ms by Redis's clock; after that, the call stores nothing
-- ARGV[2]  keep     for how many ms to remember the messages
-- ARGV[3]  channel  where subscribers listen for notifications
-- ARGV[4..]  for each message: id, due, body
--            due is in ms, or '' for now
-- Returns  { now in ms, 'late' if the call is late or else '', state, ... }: for each message
--            'stored'
--            'known', if the partition has it, or imported has its ULID
--            'taken', if its key is in use

local till, keep, channel = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local call = redis.call
local ids, times, texts = columns(4, 3)
local MAX_FORGOTTEN = 1000 -- messages that one call forgets

local now, now_ms = now_us()
if now > till * 1000 then return { now_ms, 'late' } end

local stored, held = {}, {} -- ids and keys of this call
local windows = call('ZCARD', dedup) > 0
local ulids = {}
for i, id in ipairs(ids) do ulids[i] = string.sub(id, 1, 26) end
local remembered = #ids > 0 and call('ZMSCORE', imported, unpack(ulids)) or {}

-- used reports whether a key is in use, as push.lua does.
local function used(id, key)
  local holder = call('HGET', keys, key)
  if held[key] or holder and holder ~= id and call('HEXISTS', messages, holder) == 1 then return true end
  local ends = windows and call('ZSCORE', dedup, key)
  return ends and ends * 1000 > now
end

local function import_state(i, id)
  if stored[id] or remembered[i] or call('HEXISTS', messages, id) == 1 then return 'known' end
  local key = key_of(id)
  return key and used(id, key) and 'taken' or 'stored'
end

expect_zsets(scheduled)
local dues, bodies, holders, marks, first = {}, {}, {}, {}, nil
local answers, ends = { now_ms, '' }, int(now / 1000 + keep)
for i, id in ipairs(ids) do
  local state = import_state(i, id)
  if state == 'stored' then
    local due, key, n = times[i] == '' and now_ms or times[i], key_of(id), #dues
    first = math.min(first or math.huge, tonumber(due))
    dues[n + 1], dues[n + 2] = due, id
    bodies[n + 1], bodies[n + 2] = id, texts[i]
    stored[id] = true
    if key then
      held[key] = true
      holders[#holders + 1], holders[#holders + 2] = key, id
    end
  end
  if state ~= 'taken' and not remembered[i] then
    marks[#marks + 1], marks[#marks + 2] = ends, ulids[i]
  end
  answers[#answers + 1] = state
end

-- The id is written before its body, so a body proves that the message was stored. Like push.lua,
-- this does not begin with a removal: without memory, it stores nothing.
if #dues > 0 then
  call('ZADD', scheduled, unpack(dues))
  local ok, err = pcall(call, 'HSET', messages, unpack(bodies))
  if not ok then
    for i = 2, #dues, 2 do call('ZREM', scheduled, dues[i]) end
    return redis.error_reply(type(err) == 'table' and err.err or tostring(err))
  end
  if #holders > 0 then call('HSET', keys, unpack(holders)) end
end
if #marks > 0 then call('ZADD', imported, 'GT', unpack(marks)) end

-- All is stored, so nothing may fail from here on.
local over = redis.pcall('ZRANGEBYSCORE', imported, '-inf', now_ms, 'LIMIT', 0, MAX_FORGOTTEN)
if #over > 0 then redis.pcall('ZREM', imported, unpack(over)) end
local last = redis.pcall('ZRANGE', imported, -1, -1, 'WITHSCORES')[2]
if last then may_expire(imported, redis.pcall('ZCARD', imported), int(last - now_ms)) end
if first and first <= (head(scheduled) or first) then wake(channel, now, first) end
return answers
