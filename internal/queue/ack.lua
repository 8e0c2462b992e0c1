-- ack.lua: a group is done with messages.
--
-- A late ack counts as long as nobody else has settled the message: the work is
-- done, so it does not matter whose lease it is by now.
--
-- KEYS[1]  unack     zset  id -> lease deadline, ms
-- KEYS[2]  attempts  hash  id -> token of the last delivery
-- KEYS[3]  messages  hash  id -> encoded message
-- KEYS[4]  refs      hash  id -> groups still to finish
-- KEYS[5]  changed   hash  id -> message as this group changed it
-- KEYS[6]  keys      hash  message key -> id
-- ARGV[1..]  ids
-- Returns  { id, ... }: those that were not there to be acked

local unack, attempts, messages = KEYS[1], KEYS[2], KEYS[3]
local refs, changed, keys = KEYS[4], KEYS[5], KEYS[6]

for i = 2, 6 do redis.call('HLEN', KEYS[i]) end
local leases = redis.call('ZMSCORE', unack, unpack(ARGV))
local acked, missing, n = {}, {}, 0
for i = 1, #ARGV do
  if leases[i] then
    n = n + 1
    acked[n] = ARGV[i]
  else
    missing[#missing + 1] = ARGV[i]
  end
end
if n > 0 then
  -- The first ZREM shows that the last will not be refused. Until that one, the
  -- messages are there to be acked again, should a write in between be refused.
  redis.call('ZREM', unack, '')
  if redis.call('HLEN', attempts) > 0 then redis.call('HDEL', attempts, unpack(acked)) end
  finish(messages, refs, changed, keys, acked)
  redis.call('ZREM', unack, unpack(acked))
end
return missing
