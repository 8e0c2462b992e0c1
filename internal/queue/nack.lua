-- nack.lua: the current deliveries of messages failed; they are due again later.
--
-- KEYS[1]  unack     zset  id -> lease deadline, ms
-- KEYS[2]  attempts  hash  id -> token of the last delivery
-- KEYS[3]  queue     zset  id -> due, ms
-- KEYS[4]  messages  hash  id -> encoded message
-- KEYS[5]  refs      hash  id -> groups still to finish
-- KEYS[6]  changed   hash  id -> message as this group changed it
-- KEYS[7]  dead      zset  id -> when buried, ms
-- KEYS[8]  reasons   hash  id -> why buried
-- KEYS[9]  keys      hash  message key -> id
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for work
-- ARGV[3]  max deliveries, 0 for no limit
-- ARGV[4..]  for each message: id, token, delay in ms, new body or ''
-- Returns  { id, ... }: those whose delivery is no longer the current one

local unack, attempts, queue, messages, refs = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local changed, dead, reasons, keys = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local group, channel, max = ARGV[1], ARGV[2], tonumber(ARGV[3])

for _, hash in ipairs({ messages, refs, changed, reasons, keys }) do redis.call('HLEN', hash) end
redis.call('ZCARD', dead)

local ids, tokens = {}, {}
for i = 4, #ARGV, 4 do
  ids[#ids + 1], tokens[#tokens + 1] = ARGV[i], ARGV[i + 1]
end
local holds = current(unack, attempts, ids, tokens)
local earliest = head(queue)
local now = now_us()
local stale, first = {}, nil

-- A write that frees comes first; see claim.lua.
redis.call('ZREM', unack, '')

local function keep_body(id, body)
  if body == '' then return end
  local target = redis.call('HEXISTS', refs, id) == 1 and changed or messages
  redis.call('HSET', target, id, body)
end

for i, id in ipairs(ids) do
  local deliveries = split(tokens[i])
  if not holds[i] then
    stale[#stale + 1] = id
  elseif max > 0 and deliveries >= max then
    keep_body(id, ARGV[4 * i + 3])
    bury(dead, reasons, keys, id, now, 'not acked in ' .. int(deliveries) .. ' deliveries')
    redis.call('ZREM', unack, id)
  else
    keep_body(id, ARGV[4 * i + 3])
    local due = due_ms(now, tonumber(ARGV[4 * i + 2]))
    if not first or due < first then first = due end
    redis.call('HSET', attempts, id, tokens[i])
    redis.call('ZADD', queue, int(due), id)
    redis.call('ZREM', unack, id)
  end
end

if first and (not earliest or first < earliest) then wake(channel, now, first, group) end
return stale
