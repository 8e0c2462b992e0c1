-- adopt.lua: give a new partition what partition 0 has: its groups, except those that
-- are retired here, its pauses and its limits.
--
-- KEYS[1]  groups   set   consumer groups
-- KEYS[2]  control  hash  which groups are paused or retired
-- ARGV[1]  number   of groups
-- ARGV[2..]  the groups, and then for each pause and limit its field and its value
-- Returns  { }

local groups, control = KEYS[1], KEYS[2]
local number, told = tonumber(ARGV[1]), { unpack(ARGV, 2) }

local rules = {}
for i = number + 1, #told, 2 do rules[told[i]] = told[i + 1] end
for _, field in ipairs(redis.call('HKEYS', control)) do
  if is_rule(field) and not rules[field] then redis.call('HDEL', control, field) end
end
for field, value in pairs(rules) do redis.call('HSET', control, field, value) end
for i = 1, number do
  if not retired(control, told[i]) then redis.call('SADD', groups, told[i]) end
end
return {}
