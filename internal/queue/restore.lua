-- restore.lua: let a retired group come back when its next subscriber registers it. One
-- that has ended by itself comes back without this, once what it held is freed.
--
-- KEYS[1]  control  hash  which groups are paused or retired, and when groups expire
-- ARGV[1]  group
-- Returns  { 'restored' }, or { 'not retired' }; nothing changed

local control, group = KEYS[1], ARGV[1]
if tombstone(control, group) ~= 'retired' then return { 'not retired' } end
redis.call('HDEL', control, 'retired:' .. group)
return { 'restored' }
