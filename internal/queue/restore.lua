-- restore.lua: let a retired group come back when its next subscriber registers it.
--
-- KEYS[1]  control  hash  which groups are paused, limited or retired
-- KEYS[2]  queue    zset  id -> due, ms: waiting for the group
-- KEYS[3]  unack    zset  id -> lease deadline, ms
-- KEYS[4]  dead     zset  id -> when buried, ms
-- ARGV[1]  group
-- Returns  { 'restored' }; { 'not retired' }, which includes a group that has expired; or
--          { 'held' } if forget.lua has not freed all; nothing changed

local control, queue, unack, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group = ARGV[1]

if tombstone(control, group) ~= 'retired' then return { 'not retired' } end
if redis.call('ZCARD', queue) + redis.call('ZCARD', unack) + redis.call('ZCARD', dead) > 0 then return { 'held' } end
redis.call('HDEL', control, 'retired:' .. group)
return { 'restored' }
