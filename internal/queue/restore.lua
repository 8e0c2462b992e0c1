-- restore.lua: let a retired group come back when its next subscriber registers it.
--
-- KEYS[1]  control  hash  which groups are paused or retired
-- ARGV[1]  group
-- Returns  { 'restored' }, or { 'not retired' }; nothing changed

local control, group = KEYS[1], ARGV[1]
if redis.call('HDEL', control, 'retired:' .. group) == 0 then return { 'not retired' } end
return { 'restored' }
