-- discard.lua: remove dead letters of a group for good.
--
-- KEYS[1]  dead      zset  id -> when buried, ms
-- KEYS[2]  reasons   hash  id -> why buried
-- KEYS[3]  attempts  hash  id -> token of the last delivery
-- KEYS[4]  messages  hash  id -> encoded message
-- KEYS[5]  refs      hash  id -> groups still to finish
-- KEYS[6]  changed   hash  id -> message as this group changed it
-- KEYS[7]  keys      hash  message key -> id
-- ARGV[1..]  ids
-- Returns  { id, ... }: those that are no dead letters

local dead, reasons, attempts, messages = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refs, changed, keys = KEYS[5], KEYS[6], KEYS[7]

for i = 2, 7 do redis.call('HLEN', KEYS[i]) end
local buried = redis.call('ZMSCORE', dead, unpack(ARGV))
local found, missing = {}, {}
for i, id in ipairs(ARGV) do
  local list = buried[i] and found or missing
  list[#list + 1] = id
end
if #found > 0 then
  redis.call('ZREM', dead, '') -- see ack.lua
  redis.call('HDEL', reasons, unpack(found))
  redis.call('HDEL', attempts, unpack(found))
  finish(messages, refs, changed, keys, found)
  redis.call('ZREM', dead, unpack(found))
end
return missing
