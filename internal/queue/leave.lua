-- leave.lua: a consumer has ended. The record of its last claim stays: a copy of that
-- claim may still be under way.
--
-- KEYS[1]  consumers  hash  consumer -> until when it is alive, and what is known of it
-- ARGV[1]  consumer
-- Returns  { }

local consumers, consumer = KEYS[1], ARGV[1]
redis.call('HDEL', consumers, consumer)
return {}
