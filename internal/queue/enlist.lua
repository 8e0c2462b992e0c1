-- enlist.lua: put a topic on the list of topics, or only look whether it is there.
--
-- KEYS[1]  topics   hash  topic -> version of the protocol that its data keep to
-- ARGV[1]  topic    by its plain name
-- ARGV[2]  version  to add the topic with if it is missing; '' to add nothing
-- Returns  { version }: the one on the list; { } when the topic is not on it

local topics, topic, version = KEYS[1], ARGV[1], ARGV[2]

-- A topic that is known is not written, so this works with no memory left.
local listed = redis.call('HGET', topics, topic)
if listed then return { listed } end
if version == '' then return {} end
redis.call('HSET', topics, topic, version)
return { version }
