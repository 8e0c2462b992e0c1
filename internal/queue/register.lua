-- register.lua: make a consumer group known, unless there are too many: each costs
-- every claim and every message.
--
-- KEYS[1]  groups  set  consumer groups
-- ARGV[1]  group
-- ARGV[2]  most    how many there may be
-- Returns  { 'known' } when it is, or { 'full' }; nothing changed
--          { 'added' }

local groups, group, most = KEYS[1], ARGV[1], tonumber(ARGV[2])

if redis.call('SISMEMBER', groups, group) == 1 then return { 'known' } end
if #redis.call('SMEMBERS', groups) >= most then return { 'full' } end
redis.call('SADD', groups, group)
return { 'added' }
