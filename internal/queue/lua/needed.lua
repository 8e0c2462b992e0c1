-- needed.lua: read whether the data of a partition need version 2 of the protocol.
--
-- KEYS[1]  control  hash  what groups are told: see lib_groups.lua
-- KEYS[2]  taken    zset  message key -> until when it is taken, ms
-- Returns  { 'later' } if they do, else { }

local control, taken = KEYS[1], KEYS[2]
if redis.call('HLEN', control) > 0 or redis.call('ZCARD', taken) > 0 then return { 'later' } end
return {}
