-- pause.lua: stop all groups, or one, from claiming. Deliveries under way go on.
--
-- KEYS[1]  control  hash  which groups are paused or retired
-- ARGV[1]  group    '' for all
-- ARGV[2]  lasts    ms, 0 for no end
-- ARGV[3]  text     who and why, for people
-- ARGV[4]  channel  where subscribers listen for notifications
-- Returns  { 'paused' }

local control = KEYS[1]
local group, lasts, text, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local now, now_ms = now_us()
local ends = lasts > 0 and int(math.ceil(now / 1000) + lasts) or '0'

local replaced = redis.call('HEXISTS', control, pause_of(group)) == 1
redis.call('HSET', control, pause_of(group), table.concat({ ends, now_ms, text }, ' '))
redis.pcall(NOTIFY, channel, '!' .. group)
-- Consumers know when the pause before would end; a claim tells them about this one.
if replaced then wake(channel, now, 0, group ~= '' and group or nil) end
return { 'paused' }
