-- adopt.lua: give a new partition what partition 0 has: its groups, except those that
-- are retired here, and its pauses.
--
-- KEYS[1]  groups   set   consumer groups
-- KEYS[2]  control  hash  which groups are paused or retired
-- ARGV[1]  number   of groups
-- ARGV[2..]  the groups, and then for each pause its field and its value
-- Returns  { }

local groups, control = KEYS[1], KEYS[2]
local number, told = tonumber(ARGV[1]), { unpack(ARGV, 2) }

local pauses = {}
for i = number + 1, #told, 2 do pauses[told[i]] = told[i + 1] end
for _, field in ipairs(redis.call('HKEYS', control)) do
  if is_pause(field) and not pauses[field] then redis.call('HDEL', control, field) end
end
for field, value in pairs(pauses) do redis.call('HSET', control, field, value) end
for i = 1, number do
  if not retired(control, told[i]) then redis.call('SADD', groups, told[i]) end
end
return {}
