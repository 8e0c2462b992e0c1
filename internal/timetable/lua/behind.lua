-- behind.lua: count the schedules whose next ticks should have been stored some time ago.
--
-- KEYS     schedules, upcoming
-- ARGV[1]  after  how many ms ago
-- Returns  { count, for }: how many, and for how many ms the first one is overdue; 0 if there is none. Schedules that have
--          only a definition count as well

local _, now_ms = now_us()
local lost = math.max(0, redis.call('HLEN', schedules) - redis.call('ZCARD', upcoming))
local count, since = lost + redis.call('ZCOUNT', upcoming, '-inf', '(' .. int(now_ms - ARGV[1])), now_ms
if count > 0 then since = redis.call('ZRANGE', upcoming, 0, 0, 'WITHSCORES')[2] or now_ms end
return { count, math.max(0, now_ms - since) }
