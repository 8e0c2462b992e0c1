-- restore.lua: let a retired group start again when its next subscriber registers it.
--
-- KEYS     settings, queue, unack, dead
-- ARGV[1]  group
-- ARGV[2]  how      'freed' if forget.lua has freed all and removed the settings of the group
-- ARGV[3]  channel  where subscribers listen for notifications
-- Returns  { 'restored' }; or, if nothing changed, { 'not retired' }, also for a group that has
--          expired, or { 'held' } if forget.lua has to be called first

local group, how, channel = ARGV[1], ARGV[2], ARGV[3]

if tombstone(settings, group) ~= 'retired' then return { 'not retired' } end
local held = redis.call('ZCARD', queue) + redis.call('ZCARD', unack) + redis.call('ZCARD', dead)
if how ~= 'freed' or held > 0 then return { 'held' } end
redis.call('HDEL', settings, 'retired:' .. group)
wake(channel, 0, 0, group)
return { 'restored' }
