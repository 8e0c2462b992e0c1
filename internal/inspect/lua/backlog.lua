-- backlog.lua: count the messages that await a group. It changes nothing.
--
-- KEYS[1]  scheduled  zset  id -> due, ms: not yet given to the groups
-- KEYS[2]  queue      zset  id -> due, ms: waiting for the group
-- KEYS[3]  unack      zset  id -> lease deadline, ms
-- Returns  { due, queued, in delivery }: messages that are due and in scheduled, in
--          queue, and in unack

local scheduled, queue, unack = KEYS[1], KEYS[2], KEYS[3]
local _, now_ms = now_us()
return {
  redis.call('ZCOUNT', scheduled, '-inf', now_ms),
  redis.call('ZCARD', queue),
  redis.call('ZCARD', unack),
}
