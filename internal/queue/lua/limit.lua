-- limit.lua: set or remove a group's limits: how many messages it holds, and how many it claims per time.
--
-- KEYS     groups, settings, partitions
-- ARGV[1]  group
-- ARGV[2]  limits   this partition's share; see lib_claim.lua. '' for none
-- ARGV[3]  channel  where subscribers listen for notifications
-- ARGV[4]  how      'known' in partition 0, which refuses an unknown group; 'follow' in the others
-- ARGV[5]  number   of partitions that the share is for
-- ARGV[6]  was      the share to replace; '' for any
-- Returns  { 'limited' }; or, if nothing changed, { 'unknown' }, { 'grown' } if there are more
--          partitions, or { 'changed' } if the group has another share

local group, limits, channel, how = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local number, was = tonumber(ARGV[5]), ARGV[6]

if how == 'known' then
  if unknown(groups, group) then return { 'unknown' } end
  if tonumber(redis.call('GET', partitions) or 1) > number then return { 'grown' } end
end
local has = redis.call('HGET', settings, limits_of(group)) or ''
if was ~= '' and has ~= was then return { 'changed' } end
if has == limits then return { 'limited' } end
if limits == '' then
  redis.call('HDEL', settings, limits_of(group), rate_of(group))
else
  redis.call('HDEL', settings, '') -- so that it works without memory; see begin_writes
  redis.call('HSET', settings, limits_of(group), limits)
  -- Messages claimed at a slower rate delay the group for no longer than the new burst takes.
  local interval, burst = string.match(limits, '^%d+ ([%d.]+) (%d+)')
  local back = tonumber(redis.call('HGET', settings, rate_of(group)) or 0)
  local latest = now_us() + burst * interval
  if tonumber(interval) > 0 and back and back > latest then
    redis.call('HSET', settings, rate_of(group), int(math.ceil(latest)))
  end
end
wake(channel, 0, 0, group)
return { 'limited' }
