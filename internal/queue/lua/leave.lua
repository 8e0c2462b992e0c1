-- leave.lua: remove a consumer that has ended. The record of its last claim stays if a copy of a
-- claim may still be under way: without the record, that would lease messages to nobody. Its
-- group, if it expires, lasts from now on.
--
-- KEYS[1]  consumers  hash  consumer -> until when it counts as alive, and more about it
-- KEYS[2]  control    hash  what groups are told: see lib_groups.lua
-- KEYS[3]  expiry     zset  group -> when to look whether it has expired, ms
-- KEYS[4]  claims     hash  consumer -> record of its last claim
-- ARGV[1]  consumer
-- ARGV[2]  group
-- ARGV[3]  how        'repeatable' if a copy of a claim may come, else 'over'
-- Returns  { }

local consumers, control, expiry, claims = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local consumer, group, how = ARGV[1], ARGV[2], ARGV[3]
local _, now_ms = now_us()

local lasts, ends = expiry_of(control, group)
expect_zsets(expiry)
expect_hashes(claims)
local left = redis.call('HDEL', consumers, consumer) == 1
if left and lasts and not tombstone(control, group) then
  write_expiry(control, expiry, group, tonumber(now_ms), lasts, math.max(ends, now_ms + lasts), 0)
end
if how == 'over' then redis.call('HDEL', claims, consumer) end
return {}
