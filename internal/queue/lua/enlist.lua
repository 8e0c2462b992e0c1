-- enlist.lua: add a topic to the list of topics, or only look it up.
--
-- KEYS     topics
-- ARGV[1]  topic    its plain name
-- ARGV[2]  version  to list the topic with if it is missing; '' to change nothing
-- Returns  { version }: the one on the list; { } if the topic is not on it

local topic, version = ARGV[1], ARGV[2]

-- If no memory is left, this fails only for a topic that is not listed.
local listed = redis.call('HGET', topics, topic)
if listed or version == '' then return { listed or nil } end
redis.call('HSET', topics, topic, version)
return { version }
