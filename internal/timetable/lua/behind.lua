-- behind.lua: count the schedules whose next ticks should have been stored a while ago. It looks at no schedule.
--
-- KEYS     upcoming
-- ARGV[1]  after  how many ms ago
-- Returns  { count, for }: how many, and for how many ms the first of them; 0 if there is none

local _, now_ms = now_us()
local count = redis.call('ZCOUNT', upcoming, '-inf', '(' .. int(now_ms - ARGV[1]))
if count == 0 then return { 0, 0 } end
local first = redis.call('ZRANGE', upcoming, 0, 0, 'WITHSCORES')
return { count, now_ms - first[2] }
