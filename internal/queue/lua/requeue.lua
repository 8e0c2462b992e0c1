-- requeue.lua: make dead messages of a group due again, and reset their delivery counts. Messages
-- that were buried after ARGV[3] stay. So a late copy of a call changes nothing, and requeueing all
-- messages ends even if they fail again meanwhile. A message that was buried in the future was
-- there before the clock was set back.
--
-- KEYS     dead, reasons, attempts, queue
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for notifications
-- ARGV[3]  latest    ms: only messages that were buried up to then, or in the future
-- ARGV[4..]  ids
-- Returns  { id, ... }: ids that are not such dead messages

local group, channel, latest = ARGV[1], ARGV[2], tonumber(ARGV[3])

expect_hashes(reasons, attempts)
expect_zsets(queue)
local now = now_us()

begin_writes(dead)
local missing = {}
for i = 4, #ARGV do
  local id = ARGV[i]
  local buried = redis.call('ZSCORE', dead, id)
  if buried and (tonumber(buried) <= latest or buried * 1000 > now) then
    -- The token keeps growing, so no receipt repeats.
    local token = split(redis.call('HGET', attempts, id) or '1')
    redis.call('HSET', attempts, id, entry_of(token, 0, 0))
    redis.call('ZADD', queue, int(due_ms(now, 0)), id)
    redis.call('ZREM', dead, id)
    redis.call('HDEL', reasons, id)
  else
    missing[#missing + 1] = id
  end
end
if #missing < #ARGV - 3 then wake(channel, now, 0, group) end
return missing
