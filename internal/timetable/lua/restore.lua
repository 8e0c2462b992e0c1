-- restore.lua: let schedules that have a definition, but are missing in upcoming, be taken now. It reads one page.
--
-- KEYS     schedules, upcoming
-- ARGV[1]  cursor  of HSCAN; '0' for the first page
-- Returns  { cursor }: '0' after the last page

local PAGE = 500
local _, now_ms = now_us()
redis.call('ZCARD', upcoming)
local page = redis.call('HSCAN', schedules, ARGV[1], 'COUNT', PAGE)
for i = 1, #page[2], 2 do redis.call('ZADD', upcoming, 'NX', now_ms, page[2][i]) end
return { page[1] }
