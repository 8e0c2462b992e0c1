-- retire.lua: take a group off a partition for good. It gets nothing from now on, and
-- nobody brings it back by subscribing. What it holds is freed by forget.lua.
--
-- KEYS[1]  groups     set   consumer groups
-- KEYS[2]  control    hash  what the groups are told
-- KEYS[3]  consumers  hash  consumer -> until when it is alive, and what is known of it
-- ARGV[1]  group
-- ARGV[2]  how        'idle': only without a consumer that is alive; 'forced'; 'follow':
--                     forced, known here or not, since partition 0 has decided
-- Returns  { 'retired' }; also when it was before, which changes nothing
--          { 'alive', consumer, ... } or { 'unknown' }; nothing changed

local groups, control, consumers = KEYS[1], KEYS[2], KEYS[3]
local group, how = ARGV[1], ARGV[2]
local _, now_ms = now_us()

if retired(control, group) then return { 'retired' } end
if how ~= 'follow' and redis.call('SISMEMBER', groups, group) == 0 then return { 'unknown' } end
local alive = {}
local all = redis.call('HGETALL', consumers)
for i = 1, #all, 2 do
  local till = tonumber(string.match(all[i + 1], '^%d+'))
  if till and till > tonumber(now_ms) then alive[#alive + 1] = all[i] end
end
if #alive > 0 and how == 'idle' then return answer('alive', alive) end

-- The mark comes first: without it, a group that is off the list brings itself back.
redis.call('HSET', control, 'retired:' .. group, now_ms)
redis.call('SREM', groups, group)
return { 'retired' }
