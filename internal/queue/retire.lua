-- retire.lua: remove a group from a partition for good. It gets no more messages, and
-- subscribing does not bring it back. forget.lua frees what it holds.
--
-- KEYS[1]  groups     set   consumer groups
-- KEYS[2]  control    hash  which groups are paused or retired
-- KEYS[3]  consumers  hash  consumer -> until when it counts as alive, and more about it
-- ARGV[1]  group
-- ARGV[2]  how        'idle': only if no consumer is alive; 'forced'; 'follow': forced, even
--                     if the group is not known here, since partition 0 has decided
-- Returns  { 'retired' }; if it was retired already, nothing changed
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

-- The mark comes first: without it, an unregistered group registers itself again.
redis.call('HSET', control, 'retired:' .. group, now_ms)
redis.call('SREM', groups, group)
return { 'retired' }
