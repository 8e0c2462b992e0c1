-- drop.lua: remove all that a partition has. Redis frees it in the background.
--
-- KEYS[1]   scheduled   zset    id -> due, ms
-- KEYS[2]   messages    hash    id -> encoded message
-- KEYS[3]   groups      set     consumer groups
-- KEYS[4]   refs        hash    id -> names of the groups still to finish
-- KEYS[5]   keys        hash    message key -> id
-- KEYS[6]   taken       zset    message key -> until when it is taken, ms
-- KEYS[7]   publishers  hash    publisher, or caller -> record of its last batch or request
-- KEYS[8]   control     hash    what groups are told: see lib_groups.lua
-- KEYS[9]   full        hash    group at its limit -> how many messages it may hold in unack
-- KEYS[10]  partitions  string  how many there are
-- KEYS[11]  expiry      zset    group -> when to look whether it has expired, ms
-- KEYS[12]  arrived     zset    id without its key, perhaps with a move -> until when to remember it, ms
-- KEYS[13..]  for each group: queue, unack, attempts, claims, dead, reasons, changed, consumers
-- ARGV[1]  until  ms by Redis's clock; after that, the call changes nothing: a late copy must
--                 leave a topic alone that was made anew
-- ARGV[2..]  the groups, in the order of their keys
-- Returns  { 'dropped' }
--          { 'groups', now in ms, name, ... } if there are groups that the caller does not
--            know, retired ones included, or the time is over; nothing changed

local scheduled, messages, groups, refs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local keys, taken, publishers, control = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local full, partitions, expiry, arrived = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local till = tonumber(ARGV[1])

local now, now_ms = now_us()
local known, names, strangers = {}, redis.call('SMEMBERS', groups), 0
for i = 2, #ARGV do known[ARGV[i]] = true end
for _, field in ipairs(redis.call('HKEYS', control)) do
  local name = string.match(field, '^retired:(.*)$')
  if name then names[#names + 1] = name end
end
for _, name in ipairs(names) do
  if not known[name] then strangers = strangers + 1 end
end
if now > till * 1000 or strangers > 0 then return answer('groups', answer(now_ms, names)) end

for i = 13, #KEYS, 8 do
  local queue, unack, attempts, claims = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  local dead, reasons, changed, consumers = KEYS[i + 4], KEYS[i + 5], KEYS[i + 6], KEYS[i + 7]
  redis.call('UNLINK', queue, unack, attempts, claims, dead, reasons, changed, consumers)
end
redis.call('UNLINK', scheduled, messages, refs, keys, taken, publishers, full, expiry, arrived)
redis.call('UNLINK', groups, control, partitions) -- last, since they say what there is
return { 'dropped' }
