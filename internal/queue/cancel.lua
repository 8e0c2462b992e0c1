-- cancel.lua: take back the message that holds a key from all groups that still
-- need it. A repeated call does not take back the next message with that key, thanks to
-- the record of the request; nor does a late one, thanks to its time limit.
--
-- KEYS[1]  scheduled   zset  id -> due, ms
-- KEYS[2]  messages    hash  id -> encoded message
-- KEYS[3]  publishers  hash  caller -> record of its last request
-- KEYS[4]  groups      set   consumer groups
-- KEYS[5]  refs        hash  id -> names of the groups still to finish
-- KEYS[6]  keys        hash  message key -> id
-- KEYS[7]  taken       zset  message key -> until when it is taken, ms
-- KEYS[8..]  for each group: queue, unack, attempts, changed
-- ARGV[1]  caller   string; it waits for each answer
-- ARGV[2]  request  integer, higher than in any earlier request
-- ARGV[3]  until    ms by Redis's clock; after that, the call changes nothing
-- ARGV[4]  message key
-- ARGV[5..]  the groups, in the order of their keys
-- Returns  { 'groups', now in ms, name, ... } if the groups are these instead, or
--            the time is over; nothing changed
--          { 'cancelled' }
--          { 'none' } when no message holds the key

local scheduled, messages, publishers, groups = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refs, keys, taken = KEYS[5], KEYS[6], KEYS[7]
local caller, request, till, key = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

local now, now_ms = now_us()
local number, last_ms, id = recorded(publishers, caller)
if number > request then return { 'none' } end
local again = number == request
if not again then id = holder(keys, messages, key) or '' end

local in_time = now <= till * 1000
if id ~= '' then
  local members = with_refs(redis.call('SMEMBERS', groups), refs, id)
  if not in_time or differ(members, 5) then return answer('groups', answer(now_ms, members)) end
end
if again and id == '' or not in_time then return { 'none' } end

-- Reading the keys first makes one of another type fail before any write, and shows
-- which of up to 1,000 groups have the message.
local zsets, hashes, call = {}, {}, redis.call
local window = call('ZSCORE', taken, key) and id ~= '' and call('HEXISTS', messages, id) == 1
for i = 8, #KEYS, 4 do
  local queue, unack, attempts, changed = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  local before = #zsets
  if call('ZSCORE', queue, id) then zsets[before + 1] = queue end
  if call('ZSCORE', unack, id) then zsets[#zsets + 1] = unack end
  if #zsets > before then
    if call('HEXISTS', attempts, id) == 1 then hashes[#hashes + 1] = attempts end
    if call('HEXISTS', changed, id) == 1 then hashes[#hashes + 1] = changed end
  end
end

-- The record comes first, so a repeated call finishes what a torn file left half done.
-- Body and key come next, so no key is held for ever. The window comes before the body, which
-- shows a repeated call that the window is not the next message's. refs comes last, since it
-- shows where to look.
begin_writes(scheduled)
call('HDEL', refs, '')
if not again then write_record(publishers, caller, ARGV[2], now_ms, id, last_ms) end
if id == '' then return { 'none' } end
if window then call('ZREM', taken, key) end
call('HDEL', messages, id)
if call('HGET', keys, key) == id then call('HDEL', keys, key) end
call('ZREM', scheduled, id)
for _, zset in ipairs(zsets) do call('ZREM', zset, id) end
for _, hash in ipairs(hashes) do call('HDEL', hash, id) end
call('HDEL', refs, id)
return { 'cancelled' }
