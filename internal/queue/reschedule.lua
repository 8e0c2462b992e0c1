-- reschedule.lua: give the waiting message that holds a key a new due time, in
-- scheduled or, once the groups have it, in each queue where it waits.
--
-- KEYS[1]  scheduled  zset  id -> due, ms
-- KEYS[2]  groups     set   consumer groups
-- KEYS[3]  keys       hash  message key -> id
-- KEYS[4..]  for each group: its queue
-- ARGV[1]  message key
-- ARGV[2]  id
-- ARGV[3]  delay      ms
-- ARGV[4]  channel    where subscribers listen for work
-- ARGV[5..]  the groups, in the order of their queues
-- Returns  { 'groups', name, ... } when these are the groups instead; nothing changed
--          { 'rescheduled' }
--          { 'none' } when the message does not wait with the key any more

local scheduled, groups, keys = KEYS[1], KEYS[2], KEYS[3]
local delay, channel = tonumber(ARGV[3]), ARGV[4]

local members = redis.call('SMEMBERS', groups)
if differ(members, 5) then return { 'groups', unpack(members) } end

local id = ARGV[2]
if redis.call('HGET', keys, ARGV[1]) ~= id then return { 'none' } end

local now = now_us()
local due = due_ms(now, delay)

local zsets, waiting = { scheduled }, {}
for i = 4, #KEYS do zsets[#zsets + 1] = KEYS[i] end
for _, zset in ipairs(zsets) do
  if redis.call('ZSCORE', zset, id) then waiting[#waiting + 1] = zset end
end
if #waiting == 0 then return { 'none' } end

-- A write that frees comes first; see claim.lua.
redis.call('ZREM', scheduled, '')
for _, zset in ipairs(waiting) do
  local earliest = head(zset)
  redis.call('ZADD', zset, int(due), id)
  if due < earliest then wake(channel, now, due) end
end
return { 'rescheduled' }
