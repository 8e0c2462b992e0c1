-- reschedule.lua: change the due time of a waiting message, found by its id or message key: in
-- scheduled or, once the groups have it, in each queue where it waits. A repeated or late call does
-- no harm; see cancel.lua.
--
-- KEYS     scheduled, messages, publishers, groups, refs, keys; for each group: queue, unack, dead,
--          attempts, turns, blocked
-- ARGV[1]  caller   string; sends one request at a time
-- ARGV[2]  request  integer, higher than in any earlier request
-- ARGV[3]  until    ms by Redis's clock; after that, the call changes nothing
-- ARGV[4]  by       'key' or 'id'
-- ARGV[5]  name     message key, or id
-- ARGV[6]  when     'in' or 'at'
-- ARGV[7]  ms       from now, or by Redis's clock; a time in the past counts as now
-- ARGV[8]  channel  where subscribers listen for notifications
-- ARGV[9..]  the groups, in the order of their keys
-- Returns  { 'groups', now in ms, name, ... } if ARGV lacks one of these groups that may have the
--            message, or the call is late; nothing changed
--          { 'rescheduled', id, 'scheduled' or '', group, state, ... }: the states before the call
--          { 'none', id, ... } likewise, if it waits nowhere; nothing changed
--          { 'none' } if there is no such message

local caller, request, till = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local by, name, when, ms, channel = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7]), ARGV[8]

local now, now_ms = now_us()
local number, last_ms, result = recorded(publishers, caller)
if number > request then return { 'none' } end
local again = number == request
local due, previous = int(math.max(when == 'at' and ms or due_ms(now, ms), now_ms)), nil
if again and result ~= '' then
  local text
  due, text = string.match(result, '^(%d+) (.+)$')
  previous = cjson.decode(text)
end
local id = previous and previous[2] or not again and find_message(messages, keys, by, name)

local in_time = now <= till * 1000
if id and (not in_time or has_unnamed_group(groups, refs, scheduled, id, 9)) then
  return prepend('groups', prepend(now_ms, with_refs(redis.call('SMEMBERS', groups), refs, id)))
end
if again and not id or not in_time then return { 'none' } end
if previous and previous[1] == 'none' then return previous end
if not id then
  begin_writes(scheduled)
  write_record(publishers, caller, ARGV[2], now_ms, '', last_ms)
  return { 'none' }
end

local waiting, order_sets, call = {}, {}, redis.call
local order_key, ahead = order_key_of(id), tonumber(due) > tonumber(now_ms)
local scheduled_at = call('ZSCORE', scheduled, id)
local found = { 'none', id, scheduled_at and 'scheduled' or '' }
local names, relevant = relevant_groups(groups, refs, id)
if scheduled_at then waiting[1] = scheduled end
for i = EACH_FROM, #KEYS, EACH_WIDTH do
  local queue, unack, dead, attempts, turns, blocked = unpack(KEYS, i, i + EACH_WIDTH - 1)
  local group = ARGV[9 + (i - EACH_FROM) / EACH_WIDTH]
  local function score(zset) return relevant[group] and call('ZSCORE', zset, id) end
  local waits = score(queue)
  local held = not waits and score(unack)
  local buried = not waits and not held and score(dead)
  local state = state_of(waits, held, buried, waits and call('HGET', attempts, id))
  if waits and order_key then
    order_keys_of({ id }, turns, blocked, queue)
    if ahead then order_sets[#order_sets + 1] = { group = group, turns = turns, blocked = blocked, queue = queue } end
  end
  -- A message that waits in line is due already, and keeps its place unless it is postponed.
  if waits and (ahead or tonumber(waits) < IN_LINE) then waiting[#waiting + 1] = queue end
  found[1] = waits and 'rescheduled' or found[1]
  if state then
    found[#found + 1] = group
    found[#found + 1] = state
  end
end
with_done(found, names, scheduled_at)
if scheduled_at then found[1] = 'rescheduled' end

-- The record has the due time, so a repeated call sets the same one.
begin_writes(scheduled)
if not again then
  write_record(publishers, caller, ARGV[2], now_ms, due .. ' ' .. cjson.encode(found), last_ms)
end
local earlier = false
for _, zset in ipairs(waiting) do earlier = earlier or tonumber(due) < (head(zset) or math.huge) end
for _, sets in ipairs(order_sets) do
  if postpone(sets.turns, sets.blocked, sets.queue, { id }, { order_key }, due) then wake(channel, 0, 0, sets.group) end
end
for _, zset in ipairs(waiting) do call('ZADD', zset, due, id) end
if earlier then wake(channel, now, tonumber(due)) end
return previous or found
