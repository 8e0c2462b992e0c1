-- topics.lua: read some of the list of topics. It changes nothing.
--
-- KEYS     topics
-- ARGV[1]  cursor  '0', or where the call before has ended
-- Returns  { cursor or '0' if that was all, { topic, version, ... }, perhaps some of them twice }

local STEP = 1000 -- topics, about
return redis.call('HSCAN', topics, ARGV[1], 'COUNT', STEP)
