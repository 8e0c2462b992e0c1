-- resume.lua: end the pause of all groups, or of one.
--
-- KEYS[1]  control  hash  which groups are paused or retired
-- ARGV[1]  group    '' for all
-- ARGV[2]  channel  where subscribers listen for notifications
-- Returns  { 'resumed' }, or { 'not paused' }; nothing changed

local control = KEYS[1]
local group, channel = ARGV[1], ARGV[2]
local now = now_us()

if redis.call('HDEL', control, pause_of(group)) == 0 then return { 'not paused' } end
wake(channel, now, 0, group ~= '' and group or nil)
return { 'resumed' }
