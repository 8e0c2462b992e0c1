-- register.lua: add a consumer group, unless there are too many: each group makes
-- every claim and every message cost more.
--
-- KEYS[1]  groups   set   consumer groups
-- KEYS[2]  control  hash  which groups are paused or retired
-- ARGV[1]  group
-- ARGV[2]  most     how many there may be
-- Returns  { 'known' } if it was there, { 'full' }, or { 'retired' }; nothing changed
--          { 'added' }

local groups, control = KEYS[1], KEYS[2]
local group, most = ARGV[1], tonumber(ARGV[2])

if retired(control, group) then return { 'retired' } end
if redis.call('SISMEMBER', groups, group) == 1 then return { 'known' } end
if #redis.call('SMEMBERS', groups) >= most then return { 'full' } end
redis.call('SADD', groups, group)
return { 'added' }
