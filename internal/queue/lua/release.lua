-- release.lua: take back messages that no handler has seen. They keep their due
-- time and the delivery does not count, but their token has grown.
--
-- KEYS     unack, attempts, queue, at_limit, settings
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for notifications
-- ARGV[3..]  for each message: id, receipt, due, age
--            due in ms; age is for how many ms the consumer has had it, at least
-- Returns  { id, ... }: those whose delivery is no longer the current one

local group, channel = ARGV[1], ARGV[2]

-- rate_interval is how many µs the group's rate has from one claimed message to the next; 0 for
-- any rate.
local function rate_interval()
  if redis.call('HLEN', settings) == 0 then return 0 end
  local limits = redis.call('HGET', settings, limits_of(group))
  local interval = string.match(limits or '', '^%d+ ([%d.]+) ')
  return tonumber(interval or 0) -- the Redis of redisdelaytest passes on no value, not nil, if nothing matches
end

-- refund takes back some µs of what the group's claims have used up of its rate.
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

-- What was claimed just now has used up the group's rate for nothing. The longer ago that was,
-- the more of it would be lost by now even without that claim.
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
