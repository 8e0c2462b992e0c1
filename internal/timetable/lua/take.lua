-- take.lua: lease schedules whose next ticks are to be stored, so that no other process does the same work. This is
-- not needed for correctness: tick.lua stores a tick once even if two processes send it.
--
-- KEYS     schedules, upcoming
-- ARGV[1]  count  how many at most; fewer if they are large
-- ARGV[2]  lease  after how many ms others may take them
-- Returns  { lost, now, next, lease, schedule, since, definition, ... }: how many schedules have only a definition; Redis's
--          clock; when the next schedule is to be taken, '' if there is none; the end of the leases; and for each schedule,
--          when it was to be taken, and its revision and definition. Times are in ms

local MAX_BYTES = 1048576 -- of definitions, unless the first one has more
local _, now_ms = now_us()
local lease = int(now_ms + ARGV[2])
local due = redis.call('ZRANGEBYSCORE', upcoming, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local reply, bytes = { redis.call('HLEN', schedules) - redis.call('ZCARD', upcoming), now_ms, '', lease }, 0
for i = 1, #due, 2 do
  bytes = bytes + redis.call('HSTRLEN', schedules, due[i])
  if #reply > 4 and bytes > MAX_BYTES then break end
  local definition = redis.call('HGET', schedules, due[i])
  if definition then
    redis.call('ZADD', upcoming, lease, due[i])
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = due[i], int(tonumber(due[i + 1])), definition
  else
    redis.call('ZREM', upcoming, due[i])
  end
end
local next = redis.call('ZRANGE', upcoming, 0, 0, 'WITHSCORES')[2]
if next then reply[3] = int(tonumber(next)) end
return reply
