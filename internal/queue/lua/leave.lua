-- leave.lua: remove a consumer that has ended. The record of its last claim stays if a copy of the
-- claim may still be under way: without the record, the copy would lease messages to no consumer.
-- If the group expires, its lifetime starts again.
--
-- KEYS     consumers, settings, expiry, claims
-- ARGV[1]  consumer
-- ARGV[2]  group
-- ARGV[3]  how        'repeatable' if a copy of a claim may still arrive, else 'over'
-- Returns  { }

local consumer, group, how = ARGV[1], ARGV[2], ARGV[3]
local _, now_ms = now_us()

local lasts, ends = expiry_of(settings, group)
expect_zsets(expiry)
expect_hashes(claims)
local left = redis.call('HDEL', consumers, consumer) == 1
if left and lasts and not tombstone(settings, group) then
  write_expiry(settings, expiry, group, tonumber(now_ms), lasts, math.max(ends, now_ms + lasts), 0)
end
if how == 'over' then redis.call('HDEL', claims, consumer) end
return {}
