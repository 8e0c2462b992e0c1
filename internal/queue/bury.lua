-- bury.lua: the current deliveries of messages show that they can never be
-- handled; they become dead letters of the group.
--
-- KEYS[1]  unack     zset  id -> lease deadline, ms
-- KEYS[2]  attempts  hash  id -> fence/seen/unsure
-- KEYS[3]  dead      zset  id -> when buried, ms
-- KEYS[4]  reasons   hash  id -> why buried
-- KEYS[5]  keys      hash  message key -> id
-- ARGV[1..]  for each message: id, token, reason
-- Returns  { id, ... }: those whose delivery is no longer the current one

local unack, attempts, dead, reasons, keys = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local ids, tokens = {}, {}
for i = 1, #ARGV, 3 do
  ids[#ids + 1], tokens[#tokens + 1] = ARGV[i], ARGV[i + 1]
end
local holds = current(unack, attempts, ids, tokens)
redis.call('ZCARD', dead)
redis.call('HLEN', reasons)
redis.call('HLEN', keys)
local now = now_us()

-- A write that frees comes first; see claim.lua.
redis.call('ZREM', unack, '')
local stale = {}
for i, id in ipairs(ids) do
  if holds[i] then
    bury(dead, reasons, keys, id, now, ARGV[3 * i])
    redis.call('ZREM', unack, id)
  else
    stale[#stale + 1] = id
  end
end
return stale
