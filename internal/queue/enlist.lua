-- enlist.lua: add a topic to the list of topics, or only look it up.
--
-- KEYS[1]  topics   hash  topic -> protocol version of its data
-- ARGV[1]  topic    its plain name
-- ARGV[2]  version  to list a missing topic with; '' to add nothing
-- Returns  { version }: the one on the list; { } if the topic is not on it

local topics, topic, version = KEYS[1], ARGV[1], ARGV[2]

-- A listed topic is not written, so this works when no memory is left.
local listed = redis.call('HGET', topics, topic)
if listed then return { listed } end
if version == '' then return {} end
redis.call('HSET', topics, topic, version)
return { version }
