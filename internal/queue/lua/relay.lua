-- relay.lua: move messages of a group to a stream, and ack them.
--
-- Both happen in one step, so a message that the consumer still holds is added once, however often
-- and by however many processes the call is sent. The stream is not one of the partition's keys.
--
-- KEYS     unack, attempts, messages, refs, nack_metadata, keys, at_limit, turns, blocked, queue, stream
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for notifications
-- ARGV[3]  maxlen    about how many entries the stream keeps; 0 for all
-- ARGV[4]  width     how many fields and values, together, each entry has
-- ARGV[5..]  of each message: id, receipt, and the fields and values of its entry
-- Returns  { { id, ... }, { 'room' } }; see ack.lua

local group, channel, maxlen, width = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

expect_hashes(messages, refs, nack_metadata, keys, at_limit)
redis.call('XLEN', stream)
local ids, receipts, first, n = {}, {}, {}, 0
for i = 5, #ARGV, 2 + width do
  n = n + 1
  ids[n], receipts[n], first[n] = ARGV[i], ARGV[i + 1], i + 2
end
local holds, entries = current(unack, attempts, ids, receipts)
local handed, from, stale, held, has_entries = {}, {}, {}, 0, false
for i = 1, n do
  if holds[i] then
    held = held + 1
    handed[held], from[held] = ids[i], first[i]
    has_entries = has_entries or entries[i]
  else
    stale[#stale + 1] = ids[i]
  end
end
if held == 0 then return { stale, {} } end
local order_keys, ordered = order_keys_of(handed, turns, blocked, queue)

-- As in ack.lua, removing nothing first proves that the removals at the end will not be refused.
-- The entries are added before the messages are removed, so a torn file loses nothing.
begin_writes(unack)
if has_entries then redis.call('HDEL', attempts, '') end
for i = 1, held do
  local last = from[i] + width - 1
  if maxlen > 0 then
    redis.call('XADD', stream, 'MAXLEN', '~', maxlen, '*', unpack(ARGV, from[i], last))
  else
    redis.call('XADD', stream, '*', unpack(ARGV, from[i], last))
  end
end
finish(messages, refs, nack_metadata, keys, handed, group)
local passed = ordered > 0 and pass_turns(turns, blocked, queue, handed, order_keys)
redis.call('ZREM', unack, unpack(handed))
if has_entries then redis.call('HDEL', attempts, unpack(handed)) end
if passed then wake(channel, 0, 0, group) end
local room = (release_capacity(at_limit, unack, channel, group) or passed) and 'room' or nil
return { stale, { room } }
