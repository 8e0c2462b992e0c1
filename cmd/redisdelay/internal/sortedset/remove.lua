-- remove.lua: take members out of a sorted set, unless their scores have changed.
--
-- KEYS[1]  set      zset     member -> score
-- ARGV[1..]  for each member: member, score
-- Returns  how many members it has taken out

local set, removed = KEYS[1], 0
for i = 1, #ARGV, 2 do
  local score = redis.call('ZSCORE', set, ARGV[i])
  if score and tonumber(score) == tonumber(ARGV[i + 1]) then
    removed = removed + redis.call('ZREM', set, ARGV[i])
  end
end
return removed
