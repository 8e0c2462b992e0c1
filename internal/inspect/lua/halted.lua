-- halted.lua: count the ordering keys that the newest dead messages of a group halt. It changes nothing.
--
-- KEYS     dead, turns
-- ARGV[1]  limit  dead messages to read, 1..1000
-- Returns  { count }

local limit = tonumber(ARGV[1])

if redis.call('HLEN', turns) == 0 then return { 0 } end
local ids, lines, count = {}, {}, 0
for _, id in ipairs(redis.call('ZRANGE', dead, 0, limit - 1, 'REV')) do
  local line = #id > 27 and line_of(id)
  if line then ids[#ids + 1], lines[#lines + 1] = id, line end
end
if #ids == 0 then return { 0 } end
for i, owner in ipairs(redis.call('HMGET', turns, unpack(lines))) do
  if owner == ids[i] then count = count + 1 end
end
return { count }
