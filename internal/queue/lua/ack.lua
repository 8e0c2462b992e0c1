-- ack.lua: a group is done with messages.
--
-- An ack counts while the message is in unack, whoever holds its lease by now, since the
-- work is done. It does not count if the message was nacked, buried or given back since.
--
-- KEYS     unack, attempts, messages, refs, changed, keys, full, turns, lanes, queue
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for notifications
-- ARGV[3..]  ids
-- Returns  { { id, ... }, { id, ... }, { 'room' } }: those that were not in unack; those to
--          send again, since there are too many groups to ack all at once; and whether
--          the group has waited for room, or an ordering key has another message, else { }

local group, channel, ids = ARGV[1], ARGV[2], { unpack(ARGV, 3) }

expect_hashes(attempts, messages, refs, changed, keys, full)
local leases = redis.call('ZMSCORE', unack, unpack(ids))
local acked, missing, n = {}, {}, 0
for i = 1, #ids do
  if leases[i] then
    n = n + 1
    acked[n] = ids[i]
  else
    missing[#missing + 1] = ids[i]
  end
end
if n == 0 then return { missing, {}, {} } end
local lines, ordered = lines_of(acked, turns, lanes, queue)

-- The removals of nothing show that Redis will not refuse those at the end. Until
-- then the messages stay in unack, so they can be acked again if a write is refused.
begin_writes(unack)
local entries = redis.call('HLEN', attempts) > 0
if entries then redis.call('HDEL', attempts, '') end
local ended = finish(messages, refs, changed, keys, acked, group)
local passed = ordered > 0 and pass_turns(turns, lanes, queue, acked, lines, ended)
redis.call('ZREM', unack, unpack(acked, 1, ended))
-- The entry is removed last: without it, the fence of a message in unack would repeat.
if entries then redis.call('HDEL', attempts, unpack(acked, 1, ended)) end
if passed then wake(channel, 0, 0, group) end
local room = (release_capacity(full, unack, channel, group) or passed) and 'room' or nil
return { missing, { unpack(acked, ended + 1) }, { room } }
