-- retire.lua: remove a group from a partition. It gets no more messages, and subscribing does not
-- register it again. forget.lua frees its messages.
--
-- KEYS     groups, settings, consumers
-- ARGV[1]  group
-- ARGV[2]  how        'idle': only if no consumer is alive; 'forced': always; 'follow': always, in
--                     the partitions after partition 0, even if the group is unknown there;
--                     'ended': always, and it may be registered again once all is freed
-- Returns  { 'retired' }
--          { 'alive', consumer, ... } or { 'unknown' }; nothing changed
--          { 'more' } if it has to be called again: some dead consumers were removed

local group, how = ARGV[1], ARGV[2]
local _, now_ms = now_us()
local MAX_CONSUMERS = 200 -- consumers that one call reads; each entry has up to some KiB
local MAX_NAMES = 10

local state = tombstone(settings, group)
if state == 'retired' or state and how == 'ended' then return { 'retired' } end
if not state then
  if how ~= 'follow' and unknown(groups, group) then return { 'unknown' } end
  local alive, dead = {}, {}
  local some = how == 'idle' and redis.call('HRANDFIELD', consumers, MAX_CONSUMERS, 'WITHVALUES') or {}
  for i = 1, #some, 2 do
    local till = tonumber(string.match(some[i + 1], '^%d+'))
    local list = till and till > tonumber(now_ms) and alive or dead
    list[#list + 1] = some[i]
  end
  if #alive > 0 then return prepend('alive', { unpack(alive, 1, MAX_NAMES) }) end
  if how == 'idle' and redis.call('HLEN', consumers) > #dead then
    redis.call('HDEL', consumers, unpack(dead))
    return { 'more' }
  end
end

-- The tombstone is written before the group is removed, because a live consumer would register it
-- again. The removal of nothing comes first: without memory, or without the right, nothing changes.
redis.call('SREM', groups, '')
redis.call('HSET', settings, 'retired:' .. group, how == 'ended' and now_ms .. ' expired' or now_ms)
redis.call('SREM', groups, group)
return { 'retired' }
