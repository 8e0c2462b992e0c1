-- ack.lua: a group has handled messages, as their current deliveries show.
--
-- KEYS     unack, attempts, messages, refs, nack_metadata, keys, at_limit, turns, blocked, queue
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for notifications
-- ARGV[3..]  for each message: id, receipt
-- Returns  { { id, ... }, { 'room' } }: those whose delivery is no longer the current one; and
--          whether the group has waited for room, or an ordering key has another message, else { }

local group, channel = ARGV[1], ARGV[2]

local ids, receipts = columns(3, 2)
expect_hashes(messages, refs, nack_metadata, keys, at_limit)
local holds, entries = current(unack, attempts, ids, receipts)
local acked, stale, has_entries = {}, {}, false
for i, id in ipairs(ids) do
  if holds[i] then
    acked[#acked + 1] = id
    has_entries = has_entries or entries[i]
  else
    stale[#stale + 1] = id
  end
end
if #acked == 0 then return { stale, {} } end
local lines, ordered = lines_of(acked, turns, blocked, queue)

-- The removals of nothing show that Redis will not refuse those at the end. Until
-- then the messages stay in unack, so they can be acked again if a write is refused.
begin_writes(unack)
if has_entries then redis.call('HDEL', attempts, '') end
finish(messages, refs, nack_metadata, keys, acked, group)
local passed = ordered > 0 and pass_turns(turns, blocked, queue, acked, lines)
redis.call('ZREM', unack, unpack(acked))
-- The entry is removed last: without it, the token of a message in unack would repeat.
if has_entries then redis.call('HDEL', attempts, unpack(acked)) end
if passed then wake(channel, 0, 0, group) end
local room = (release_capacity(at_limit, unack, channel, group) or passed) and 'room' or nil
return { stale, { room } }
