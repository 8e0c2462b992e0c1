-- restore.lua: let a retired group come back: the next subscriber makes it known again.
--
-- KEYS[1]  control  hash  what the groups are told
-- ARGV[1]  group
-- Returns  { 'restored' }, or { 'not retired' }; nothing changed

local control, group = KEYS[1], ARGV[1]
if redis.call('HDEL', control, 'retired:' .. group) == 0 then return { 'not retired' } end
return { 'restored' }
