-- cancel.lua: remove a message, found by its id or message key, from scheduled and from all groups
-- that wait for it or handle it. Where it is a dead message, it stays. A repeated call cannot
-- cancel the next message with that key, because the request is recorded; nor can a late call,
-- because of its time limit.
--
-- KEYS     scheduled, messages, publishers, groups, refs, keys, dedup, at_limit; for each group: queue,
--          unack, dead, attempts, nack_metadata, turns, blocked
-- ARGV[1]  caller   string; sends one request at a time
-- ARGV[2]  request  integer, higher than in any earlier request
-- ARGV[3]  until    ms by Redis's clock; after that, the call changes nothing
-- ARGV[4]  by       'key' or 'id'
-- ARGV[5]  name     message key, or id
-- ARGV[6]  channel  where subscribers listen for notifications
-- ARGV[7..]  the groups, in the order of their keys
-- Returns  { 'groups', now in ms, name, ... } if ARGV lacks one of these groups that may have the
--            message, or the call is late; nothing changed
--          { 'cancelled', id, 'scheduled' or '', group, state, ... }: the states before the call
--          { 'none', id, ... } likewise, if only dead messages are left of it; nothing changed
--          { 'none' } if there is no such message

local caller, request, till = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local by, name, channel = ARGV[4], ARGV[5], ARGV[6]

local now, now_ms = now_us()
local number, last_ms, result = recorded(publishers, caller)
if number > request then return { 'none' } end
local again = number == request
local previous = again and result ~= '' and cjson.decode(result)
local id = previous and previous[2] or not again and find_message(messages, keys, by, name)

local in_time = now <= till * 1000
if id and (not in_time or has_unnamed_group(groups, refs, scheduled, id, 7)) then
  return prepend('groups', prepend(now_ms, with_refs(redis.call('SMEMBERS', groups), refs, id)))
end
if again and not id or not in_time then return { 'none' } end
if previous and previous[1] == 'none' then return previous end
if not id then
  begin_writes(scheduled)
  write_record(publishers, caller, ARGV[2], now_ms, '', last_ms)
  return { 'none' }
end

-- All keys are read before the first write: a key of another type fails here, and later writes
-- concern only the groups that have the message.
local zsets, hashes, burials, left, call = {}, {}, {}, {}, redis.call
local order_key, order_sets = order_key_of(id), {}
local listed, scheduled_at = call('HEXISTS', refs, id) == 1, call('ZSCORE', scheduled, id)
local found = { 'none', id, scheduled_at and 'scheduled' or '' }
local names, relevant = relevant_groups(groups, refs, id)
expect_hashes(at_limit)
for i = EACH_FROM, #KEYS, EACH_WIDTH do
  local queue, unack, dead, attempts, nack_metadata, turns, blocked = unpack(KEYS, i, i + EACH_WIDTH - 1)
  local group = ARGV[7 + (i - EACH_FROM) / EACH_WIDTH]
  local function score(zset) return relevant[group] and call('ZSCORE', zset, id) end
  local waits, held, buried = score(queue), score(unack), score(dead)
  local entry = (waits or held) and call('HGET', attempts, id)
  if waits then zsets[#zsets + 1] = queue end
  if held then
    zsets[#zsets + 1] = unack
    left[group] = unack
  end
  if order_key and (waits or held) then
    order_keys_of({ id }, turns, blocked, queue)
    order_sets[#order_sets + 1] = { group = group, turns = turns, blocked = blocked, queue = queue }
  end
  if buried then
    burials[#burials + 1] = group
  elseif waits or held then
    if entry then hashes[#hashes + 1] = attempts end
    if call('HEXISTS', nack_metadata, id) == 1 then hashes[#hashes + 1] = nack_metadata end
  end
  local state = state_of(waits, held, buried, entry)
  if state then
    found[#found + 1] = group
    found[#found + 1] = state
  end
end
with_done(found, names, scheduled_at)
if scheduled_at or #zsets > 0 or #burials == 0 then found[1] = 'cancelled' end
local key = by == 'key' and name or current_key_of(messages, keys, id)
-- If another message has taken the key since the first attempt, a repeated call keeps its window.
local window = key and call('ZSCORE', dedup, key) and (not previous or find_by_key(keys, messages, key) == id)

-- The record is written first, so that a repeated call finishes what a torn file left half done.
-- The window is removed before the body, which proves that the window is not the next message's.
-- The key is removed with the body, so that it is not held for ever. refs is removed last, because
-- it names the groups. Dead messages keep the body.
begin_writes(scheduled)
call('HDEL', refs, '')
if not again then write_record(publishers, caller, ARGV[2], now_ms, cjson.encode(found), last_ms) end
if not previous and found[1] == 'none' then return found end
if window then call('ZREM', dedup, key) end
if #burials == 0 then
  call('HDEL', messages, id)
  free(keys, id)
end
for _, sets in ipairs(order_sets) do
  if postpone(sets.turns, sets.blocked, sets.queue, { id }, { order_key }) then wake(channel, 0, 0, sets.group) end
end
call('ZREM', scheduled, id)
for _, zset in ipairs(zsets) do call('ZREM', zset, id) end
for _, hash in ipairs(hashes) do call('HDEL', hash, id) end
if #burials == 0 then
  call('HDEL', refs, id)
elseif listed then
  call('HSET', refs, id, list_of(burials))
end
for group, unack in pairs(left) do release_capacity(at_limit, unack, channel, group) end
return previous or found
