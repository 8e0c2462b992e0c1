-- topics.lua: read a page of the list of topics. It changes nothing.
--
-- KEYS     topics
-- ARGV[1]  cursor  '0', or that of the previous call
-- Returns  { cursor or '0' after the last page, { topic, version, ... } }; a topic may be returned twice

local STEP = 1000 -- topics, about
return redis.call('HSCAN', topics, ARGV[1], 'COUNT', STEP)
