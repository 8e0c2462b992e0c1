-- release.lua: return messages that no handler has seen to the queue. They keep their due time, and
-- the delivery does not count, but its token is not used again.
--
-- KEYS     unack, attempts, queue, at_limit, settings
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for notifications
-- ARGV[3..]  for each message: id, receipt, due, age
--            due is in ms; age is for how many ms, at least, the consumer has held the message
-- Returns  { id, ... }: messages whose delivery is not current

local group, channel = ARGV[1], ARGV[2]

-- rate_interval returns the µs between claimed messages at the group's rate; 0 if it has no rate
-- limit.
local function rate_interval()
  if redis.call('HLEN', settings) == 0 then return 0 end
  local limits = redis.call('HGET', settings, limits_of(group))
  local interval = string.match(limits or '', '^%d+ ([%d.]+) ')
  return tonumber(interval or 0) -- the Redis of redisdelaytest returns no value, not nil, if nothing matches
end

-- refund returns some µs of the rate that the group's claims have used.
local function refund(us)
  local back = us > 0 and tonumber(redis.call('HGET', settings, rate_of(group)))
  if back then redis.call('HSET', settings, rate_of(group), int(math.ceil(back - us))) end
end

local ids, receipts, due, age = columns(3, 4)
local holds = current(unack, attempts, ids, receipts)
expect_zsets(queue)
expect_hashes(at_limit)
local now = now_us()
local interval = rate_interval()

-- A released message has used the group's rate for nothing. The refund shrinks with its age,
-- because unused rate is lost in time anyway.
local dues, left, given, stale, unused = {}, {}, {}, {}, 0
for i, id in ipairs(ids) do
  if holds[i] then
    dues[#dues + 1] = due[i]
    dues[#dues + 1] = id
    left[#left + 1] = id
    left[#left + 1] = unseen(receipts[i])
    given[#given + 1] = id
    unused = unused + math.max(0, interval - age[i] * 1000)
  else
    stale[#stale + 1] = id
  end
end

if #given > 0 then
  begin_writes(unack)
  redis.call('HSET', attempts, unpack(left))
  redis.call('ZADD', queue, unpack(dues))
  redis.call('ZREM', unack, unpack(given))
  redis.call('HDEL', at_limit, group)
  refund(unused)
  wake(channel, now, 0, group)
end
return stale
