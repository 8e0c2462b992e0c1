-- limit.lua: limit how many messages a group holds, and how many it claims in a time.
--
-- KEYS[1]  groups   set   consumer groups
-- KEYS[2]  control  hash  which groups are paused, limited or retired
-- ARGV[1]  group
-- ARGV[2]  limits   this partition's share of them; see lib_claim.lua. '' for none
-- ARGV[3]  channel  where subscribers listen for notifications
-- ARGV[4]  how      'known': only a group that is known; 'follow': any, since partition 0
--                   has decided
-- Returns  { 'limited' }, or { 'unknown' }; nothing changed

local groups, control = KEYS[1], KEYS[2]
local group, limits, channel, how = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if how == 'known' and unknown(groups, group) then return { 'unknown' } end
if limits == '' then
  redis.call('HDEL', control, limits_of(group), 'rate:' .. group)
else
  redis.call('HDEL', control, '') -- so that Redis does not refuse when maxmemory is reached
  redis.call('HSET', control, limits_of(group), limits)
  -- What was claimed at a slower rate counts for no longer than the new burst takes.
  local interval, burst = string.match(limits, '^%d+ ([%d.]+) (%d+)')
  local back = tonumber(redis.call('HGET', control, 'rate:' .. group) or 0)
  local latest = now_us() + burst * interval
  if tonumber(interval) > 0 and back and back > latest then
    redis.call('HSET', control, 'rate:' .. group, int(math.ceil(latest)))
  end
end
wake(channel, 0, 0, group)
return { 'limited' }
