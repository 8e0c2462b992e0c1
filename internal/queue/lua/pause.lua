-- pause.lua: stop all groups, or one, from claiming. Messages in delivery are not affected.
--
-- KEYS     groups, settings
-- ARGV[1]  group    '' for all
-- ARGV[2]  lasts    ms, 0 for no end
-- ARGV[3]  text     who paused and why, for operators
-- ARGV[4]  channel  where subscribers listen for notifications
-- ARGV[5]  how      'known' in partition 0, which refuses an unknown group; 'follow' in the others
-- Returns  { 'paused' }; or { 'unknown' }, and nothing changed

local group, lasts, text, channel, how = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local now, now_ms = now_us()
local ends = lasts > 0 and int(math.ceil(now / 1000) + lasts) or '0'

if how == 'known' and unknown(groups, group) then return { 'unknown' } end
local replaced = redis.call('HEXISTS', settings, pause_of(group)) == 1
redis.call('HDEL', settings, '') -- removes nothing, so that it works without memory
redis.call('HSET', settings, pause_of(group), table.concat({ ends, now_ms, text }, ' '))
redis.pcall(NOTIFY, channel, '!' .. group)
-- Consumers sleep until the end of the replaced pause; a claim tells them the new end.
if replaced then wake(channel, now, 0, group ~= '' and group or nil) end
return { 'paused' }
