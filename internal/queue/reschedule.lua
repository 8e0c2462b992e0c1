-- reschedule.lua: give the waiting message that holds a key a new due time, in
-- scheduled or, once the groups have it, in each queue where it waits. A repeated or
-- late call does no harm; see cancel.lua.
--
-- KEYS[1]  scheduled   zset  id -> due, ms
-- KEYS[2]  messages    hash  id -> encoded message
-- KEYS[3]  publishers  hash  caller -> record of its last request
-- KEYS[4]  groups      set   consumer groups
-- KEYS[5]  refs        hash  id -> names of the groups still to finish
-- KEYS[6]  keys        hash  message key -> id
-- KEYS[7..]  for each group: queue
-- ARGV[1]  caller   string; it waits for each answer
-- ARGV[2]  request  integer, higher than in any earlier request
-- ARGV[3]  until    ms by Redis's clock; after that, the call changes nothing
-- ARGV[4]  message key
-- ARGV[5]  delay    ms
-- ARGV[6]  channel  where subscribers listen for notifications
-- ARGV[7..]  the groups, in the order of their queues
-- Returns  { 'groups', now in ms, name, ... } if the groups are these instead, or
--            the time is over; nothing changed
--          { 'rescheduled' }
--          { 'none' } when no waiting message holds the key

local scheduled, messages, publishers, groups = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refs, keys = KEYS[5], KEYS[6]
local caller, request, till, key = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local delay, channel = tonumber(ARGV[5]), ARGV[6]

local now, now_ms = now_us()
local number, last_ms, result = recorded(publishers, caller)
if number > request then return { 'none' } end
local again = number == request
local due, id = string.match(result, '^(%d+) (.+)$')
if not again then due, id = int(due_ms(now, delay)), holder(keys, messages, key) end

local in_time = now <= till * 1000
if id then
  local members = with_refs(redis.call('SMEMBERS', groups), refs, id)
  if not in_time or differ(members, 7) then return answer('groups', answer(now_ms, members)) end
end
if again and not id or not in_time then return { 'none' } end

local waiting, call = {}, redis.call
if id and call('ZSCORE', scheduled, id) then waiting[1] = scheduled end
for i = 7, #KEYS do
  if id and call('ZSCORE', KEYS[i], id) then waiting[#waiting + 1] = KEYS[i] end
end
local found = #waiting > 0

-- The record has the due time, so a repeated call does not move it.
begin_writes(scheduled)
if not again then
  write_record(publishers, caller, ARGV[2], now_ms, found and due .. ' ' .. id or '', last_ms)
end
local earlier = false
for _, zset in ipairs(waiting) do
  earlier = earlier or tonumber(due) < head(zset)
  call('ZADD', zset, due, id)
end
if earlier then wake(channel, now, tonumber(due)) end
return { (again or found) and 'rescheduled' or 'none' }
