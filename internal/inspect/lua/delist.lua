-- delist.lua: remove a topic from the list of topics.
--
-- KEYS     topics
-- ARGV[1]  topic   its plain name
-- ARGV[2]  until   ms by Redis's clock; after that, the call changes nothing: a late copy must
--                  not remove a topic that was created again
-- Returns  { 'delisted' }, also if it was not on the list; { 'late' }

local topic, till = ARGV[1], tonumber(ARGV[2])
if now_us() > till * 1000 then return { 'late' } end
redis.call('HDEL', topics, topic)
return { 'delisted' }
