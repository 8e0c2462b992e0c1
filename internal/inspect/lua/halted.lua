-- halted.lua: count the ordering keys that the newest dead messages of a group halt. It changes nothing.
--
-- KEYS     dead, turns
-- ARGV[1]  limit  dead messages to read, 1..1000
-- Returns  { count }

local limit = tonumber(ARGV[1])

if redis.call('HLEN', turns) == 0 then return { 0 } end
local ids, order_keys, count = {}, {}, 0
for _, id in ipairs(redis.call('ZRANGE', dead, 0, limit - 1, 'REV')) do
  local order_key = #id > 27 and order_key_of(id)
  if order_key then ids[#ids + 1], order_keys[#order_keys + 1] = id, order_key end
end
if #ids == 0 then return { 0 } end
for i, owner in ipairs(redis.call('HMGET', turns, unpack(order_keys))) do
  if owner == ids[i] then count = count + 1 end
end
return { count }
