-- needed.lua: read whether the data of a partition need version 2 of the protocol.
--
-- KEYS     control, taken
-- Returns  { 'later' } if they do, else { }

if redis.call('HLEN', control) > 0 or redis.call('ZCARD', taken) > 0 then return { 'later' } end
return {}
