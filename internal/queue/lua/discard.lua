-- discard.lua: remove dead messages of a group permanently, up to a limit of bytes. ARGV[4]
-- protects messages that were requeued and buried again from a late copy of a call; see
-- requeue.lua.
--
-- KEYS     dead, reasons, attempts, messages, refs, nack_metadata, keys, turns, blocked, queue
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for notifications
-- ARGV[3]  bytes     of bodies to remove at most, unless the first has more
-- ARGV[4]  latest    ms: only messages that were buried up to then, or in the future
-- ARGV[5..]  ids
-- Returns  { { id, ... }, { id, ... } }: ids that are not such dead messages, and ids to send again
--          because of the limit of bytes

local group, channel, bytes, latest, ids = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), { unpack(ARGV, 5) }

expect_hashes(reasons, attempts, messages, refs, nack_metadata, keys)
local now = now_us()
local buried = redis.call('ZMSCORE', dead, unpack(ids))
local found, missing, left, size = {}, {}, {}, 0
for i, id in ipairs(ids) do
  if not buried[i] or tonumber(buried[i]) > latest and buried[i] * 1000 <= now then
    missing[#missing + 1] = id
  else
    size = size + redis.call('HSTRLEN', messages, id)
    local list = (#found == 0 or size <= bytes) and found or left
    list[#list + 1] = id
  end
end
if #found == 0 then return { missing, left } end
local order_keys, ordered = order_keys_of(found, turns, blocked, queue)

begin_writes(dead) -- see ack.lua
redis.call('HDEL', reasons, '')
finish(messages, refs, nack_metadata, keys, found, group)
if ordered > 0 and pass_turns(turns, blocked, queue, found, order_keys) then wake(channel, 0, 0, group) end
redis.call('ZREM', dead, unpack(found))
redis.call('HDEL', reasons, unpack(found))
redis.call('HDEL', attempts, unpack(found))
return { missing, left }
