-- arrive.lua: store messages that come from another topic or server, under their own ids,
-- once: arrived remembers them, even if they are delivered and done meanwhile.
--
-- KEYS[1]  scheduled  zset  id -> due, ms
-- KEYS[2]  messages   hash  id -> encoded message
-- KEYS[3]  keys       hash  message key -> id
-- KEYS[4]  taken      zset  message key -> until when it is taken, ms
-- KEYS[5]  moving     hash  id -> where it was, and where it is moved to
-- KEYS[6]  arrived    zset  id without its key, or a move of it -> until when to remember it, ms
-- ARGV[1]  until    ms by Redis's clock; after that, the call stores nothing
-- ARGV[2]  keep     for how many ms to remember the messages
-- ARGV[3]  channel  where subscribers listen for notifications
-- ARGV[4]  how      'store', or 'look' to change nothing
-- ARGV[5..]  for each message: id, move, due, body
--            move is the batch that took it out of the other topic, or '' for a copy; due is in
--            ms, or '' for now
-- Returns  { now in ms, 'late' if the time is over or else '', state, ... }: for each message
--            'stored', or 'absent' if it only looks
--            'known', if it is there, or this move of it has arrived; a copy, if it has been there
--            'past', if it has been there, and this is another move
--            'taken', if its key is in use
--            'moving', if it is being moved from here

local scheduled, messages, keys, taken = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local moving, arrived = KEYS[5], KEYS[6]
local till, keep, channel, looks = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4] == 'look'
local call = redis.call
local ids, batches, times, texts = columns(5, 4)
local MOST = 1000 -- messages that one call forgets

local now, now_ms = now_us()
if now > till * 1000 then return { now_ms, 'late' } end

local stored, held = {}, {} -- ids and keys of this call
local moves, windows = call('HLEN', moving) > 0, call('ZCARD', taken) > 0
local names, own = {}, {} -- as arrived has the ids, and their moves
for i, id in ipairs(ids) do
  names[i] = string.sub(id, 1, 26)
  own[i] = batches[i] == '' and names[i] or names[i] .. '/' .. batches[i]
end
local remembered = #ids > 0 and call('ZMSCORE', arrived, unpack(names)) or {}
local repeated = #ids > 0 and call('ZMSCORE', arrived, unpack(own)) or {}

-- used tells whether a key is in use, as push.lua does.
local function used(id, key)
  local holder = call('HGET', keys, key)
  if held[key] or holder and holder ~= id and call('HEXISTS', messages, holder) == 1 then return true end
  local ends = windows and call('ZSCORE', taken, key)
  return ends and ends * 1000 > now
end

-- state_of_arrival looks for a message. That this move of it has arrived comes first: it may be
-- moved on by now. A body that is being moved from here does not show that the message arrived.
-- Nor does an earlier arrival: since then, the message may have come back to where it comes from.
local function state_of_arrival(i, id)
  if stored[id] or repeated[i] then return 'known' end
  if moves and call('HEXISTS', moving, id) == 1 then return 'moving' end
  if call('HEXISTS', messages, id) == 1 then return 'known' end
  if remembered[i] then return 'past' end
  local key = key_of(id)
  if key and used(id, key) then return 'taken' end
  return looks and 'absent' or 'stored'
end

expect_zsets(scheduled)
local dues, bodies, holders, marks, first = {}, {}, {}, {}, nil
local answers, ends = { now_ms, '' }, int(now / 1000 + keep)
for i, id in ipairs(ids) do
  local state = state_of_arrival(i, id)
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
  if state == 'stored' or state == 'known' and not repeated[i] then
    marks[#marks + 1], marks[#marks + 2] = ends, names[i]
    if own[i] ~= names[i] then marks[#marks + 1], marks[#marks + 2] = ends, own[i] end
  end
  answers[#answers + 1] = state
end
if looks then return answers end

-- The id comes before its body, so a body shows that the message was stored. Like push.lua,
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
if #marks > 0 then call('ZADD', arrived, 'GT', unpack(marks)) end

-- All is stored, so nothing may fail from here on.
local over = redis.pcall('ZRANGEBYSCORE', arrived, '-inf', now_ms, 'LIMIT', 0, MOST)
if #over > 0 then redis.pcall('ZREM', arrived, unpack(over)) end
local last = redis.pcall('ZRANGE', arrived, -1, -1, 'WITHSCORES')[2]
if last then may_expire(arrived, redis.pcall('ZCARD', arrived), int(last - now_ms)) end
if first and first <= (head(scheduled) or first) then wake(channel, now, first) end
return answers
