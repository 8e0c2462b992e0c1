-- drop.lua: remove all keys of a partition. Redis frees them in the background.
--
-- KEYS     scheduled, messages, groups, refs, keys, dedup, publishers, settings, at_limit, partitions,
--          expiry, imported, ticks; for each group: queue, unack, attempts, claims, dead, reasons, nack_metadata,
--          consumers, turns, blocked
-- ARGV[1]  until  ms by Redis's clock; after that, the call changes nothing: a late copy must
--                 not remove a topic that was created again
-- ARGV[2..]  the groups, in the order of their keys
-- Returns  { 'dropped' }
--          { 'groups', now in ms, name, ... } if ARGV lacks some of the groups, retired ones
--            included, or the call is late; nothing changed

local till = tonumber(ARGV[1])

local now, now_ms = now_us()
local known, names, strangers = {}, redis.call('SMEMBERS', groups), 0
for i = 2, #ARGV do known[ARGV[i]] = true end
for _, field in ipairs(redis.call('HKEYS', settings)) do
  local name = string.match(field, '^retired:(.*)$')
  if name then names[#names + 1] = name end
end
for _, name in ipairs(names) do
  if not known[name] then strangers = strangers + 1 end
end
if now > till * 1000 or strangers > 0 then return prepend('groups', prepend(now_ms, names)) end

for i = EACH_FROM, #KEYS, EACH_WIDTH do
  local queue, unack, attempts, claims, dead, reasons, nack_metadata, consumers, turns, blocked = unpack(KEYS, i, i + EACH_WIDTH - 1)
  redis.call('UNLINK', queue, unack, attempts, claims, dead, reasons, nack_metadata, consumers, turns, blocked)
end
redis.call('UNLINK', scheduled, messages, refs, keys, dedup, publishers, at_limit, expiry, imported, ticks)
redis.call('UNLINK', groups, settings, partitions) -- last, because they show a repeated call what to remove
return { 'dropped' }
