-- resume.lua: end the pause of all groups, or of one.
--
-- KEYS     groups, settings
-- ARGV[1]  group    '' for all
-- ARGV[2]  channel  where subscribers listen for notifications
-- ARGV[3]  how      'known' in partition 0, which refuses a group that is neither known nor paused;
--                   'follow' in the others
-- Returns  { 'resumed' }; or, if nothing changed, { 'not paused' } or { 'unknown' }

local group, channel, how = ARGV[1], ARGV[2], ARGV[3]
local now = now_us()

local missing = how == 'known' and unknown(groups, group)
if redis.call('HDEL', settings, pause_of(group)) == 0 then return { missing and 'unknown' or 'not paused' } end
wake(channel, now, 0, group ~= '' and group or nil)
return { 'resumed' }
