-- sweep.lua: remove old entries of keys that are too large to expire at once, and name groups that
-- may end soon. Small keys expire by themselves.
--
-- KEYS     publishers, dedup, imported, claims, expiry
-- Returns  { 'more' if there is more to drop, or 'done', { group, ... } }

local MAX_ENTRIES = 500 -- entries of each key that one call reads
local _, now_ms = now_us()
local now = tonumber(now_ms)
local more = false
expect_hashes(publishers, claims)
expect_zsets(dedup, imported)
local soon = expiring_soon(expiry, now)

-- sweep_records reads random records and removes the old ones. If a quarter of them was old, there is
-- more to remove.
local function sweep_records(hash)
  if redis.call('HLEN', hash) <= FEW then return end
  local some, old = redis.call('HRANDFIELD', hash, MAX_ENTRIES, 'WITHVALUES'), {}
  for i = 1, #some, 2 do
    local _, written = parse_record(some[i + 1])
    if not written or now - written > DAY_MS then old[#old + 1] = some[i] end
  end
  if #old > 0 then redis.call('HDEL', hash, unpack(old)) end
  more = more or #old * 4 >= MAX_ENTRIES
  may_expire(hash, redis.call('HLEN', hash), DAY_MS + HOUR_MS)
end

local function sweep_times(zset)
  if redis.call('ZCARD', zset) <= FEW then return end
  local over = redis.call('ZRANGEBYSCORE', zset, '-inf', now_ms, 'LIMIT', 0, MAX_ENTRIES)
  if #over > 0 then redis.call('ZREM', zset, unpack(over)) end
  more = more or #over == MAX_ENTRIES
  local last = tonumber(redis.call('ZRANGE', zset, -1, -1, 'WITHSCORES')[2])
  if last then may_expire(zset, redis.call('ZCARD', zset), int(last - now)) end
end

sweep_records(publishers)
sweep_records(claims)
sweep_times(dedup)
sweep_times(imported)
return { more and 'more' or 'done', soon }
