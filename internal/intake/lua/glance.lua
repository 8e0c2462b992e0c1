-- glance.lua: report how full the inbox is. It changes nothing.
--
-- KEYS     entries, rejected
-- Returns  { now, length, first, rejected }: Redis's clock in ms, the number of waiting entries, the id of the first, '' if there
--          is none, and the number of rejected entries that are kept

local _, now_ms = now_us()
local first = redis.call('XRANGE', entries, '-', '+', 'COUNT', 1)[1]
return { now_ms, redis.call('XLEN', entries), first and first[1] or '', redis.call('XLEN', rejected) }
