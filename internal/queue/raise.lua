-- raise.lua: raise the number of partitions that a topic has. It never sinks, so
-- that no message becomes unreachable.
--
-- KEYS[1]  partitions  string  how many there are; none means 1
-- ARGV[1]  wanted      integer
-- ARGV[2]  channel     where subscribers listen for work
-- Returns  { number of partitions }

local partitions, wanted = KEYS[1], tonumber(ARGV[1])
local number = tonumber(redis.call('GET', partitions) or 1)
if not number or number < 1 or number % 1 > 0 then
  return redis.error_reply('ERR the number of partitions is damaged')
end
if wanted <= number then return { number } end
redis.call('SET', partitions, int(wanted))
redis.pcall(NOTIFY, ARGV[2], '+')
return { wanted }
