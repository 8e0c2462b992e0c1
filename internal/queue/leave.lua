-- leave.lua: remove a consumer that has ended. The record of its last claim stays: a copy
-- of that claim may still be under way.
--
-- KEYS[1]  consumers  hash  consumer -> until when it counts as alive, and more about it
-- ARGV[1]  consumer
-- Returns  { }

local consumers, consumer = KEYS[1], ARGV[1]
redis.call('HDEL', consumers, consumer)
return {}
