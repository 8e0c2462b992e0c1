-- enlist.lua: add a topic to the list of topics, raise its version, or only look it up.
--
-- KEYS     topics
-- ARGV[1]  topic    its plain name
-- ARGV[2]  version  to list the topic with, if it is missing or has an older major
--                   version; '' to change nothing
-- Returns  { version }: the one on the list; { } if the topic is not on it

local topic, version = ARGV[1], ARGV[2]

local function major(text) return tonumber(string.match(text, '^(%d+)$') or string.match(text, '^(%d+)%.%d+$')) end

-- When no memory is left, this only fails for a topic that is not listed.
local listed = redis.call('HGET', topics, topic)
local has = listed and (major(listed) or 0)
if version == '' or has and (has < 1 or has >= major(version)) then return { listed or nil } end
if listed then redis.call('HDEL', topics, '') end -- so that this works without memory, too
redis.call('HSET', topics, topic, version)
return { version }
