-- ack.lua: remove messages that a group has handled, if their deliveries are still current.
--
-- KEYS     unack, attempts, messages, refs, nack_metadata, keys, at_limit, turns, blocked, queue
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for notifications
-- ARGV[3..]  for each message: id, receipt
-- Returns  { { id, ... }, { 'room' } }: messages whose delivery is not current; and 'room' if the group
--          was at its limit, or an ordering key has a next message, so that it can claim more; else { }

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
local order_keys, ordered = order_keys_of(acked, turns, blocked, queue)

-- Removing nothing first proves that Redis will not refuse the removals at the end. If a write in
-- between is refused, the messages are still in unack, so they can be acked again.
begin_writes(unack)
if has_entries then redis.call('HDEL', attempts, '') end
finish(messages, refs, nack_metadata, keys, acked, group)
local passed = ordered > 0 and pass_turns(turns, blocked, queue, acked, order_keys)
redis.call('ZREM', unack, unpack(acked))
-- The entry is removed last: a message in unack without its entry would get the same token again.
if has_entries then redis.call('HDEL', attempts, unpack(acked)) end
if passed then wake(channel, 0, 0, group) end
local room = (release_capacity(at_limit, unack, channel, group) or passed) and 'room' or nil
return { stale, { room } }
