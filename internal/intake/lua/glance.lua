-- glance.lua: tell how full the inbox is. It changes nothing.
--
-- KEYS     entries, reading, refused
-- Returns  { now, length, first, refused, reader }: Redis's clock in ms, how many entries wait, the id of the first, '' if there
--          is none, how many refused entries are kept, and who read the last batch, '' for nobody

local _, now_ms = now_us()
local first = redis.call('XRANGE', entries, '-', '+', 'COUNT', 1)[1]
return {
  now_ms, redis.call('XLEN', entries), first and first[1] or '', redis.call('XLEN', refused),
  redis.call('HGET', reading, 'reader') or '',
}
