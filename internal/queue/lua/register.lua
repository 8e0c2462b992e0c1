-- register.lua: add a consumer group, unless there are too many: each group makes every message
-- more expensive.
--
-- KEYS     groups, settings, expiry
-- ARGV[1]  group
-- ARGV[2]  max      how many there may be
-- ARGV[3]  lasts    how many ms the group lasts without a live consumer; 0 for ever
-- ARGV[4]  limits   this partition's share of its limits if it is added; '' for none
-- Returns  { 'known' } if the group existed, or { 'added' }
--          { 'full' }, { 'retired' }, or { 'expired' } if it has ended and forget.lua must first
--          free all its messages; nothing changed

local group, max_groups, lasts, limits = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local _, now_ms = now_us()

local state = tombstone(settings, group)
if state then return { state } end
local known = not unknown(groups, group)
if not known and redis.call('SCARD', groups) >= max_groups then return { 'full' } end
expect_zsets(expiry)

-- For a known group, this works if no memory is left.
if known then begin_writes(expiry) end
if lasts > 0 then
  write_expiry(settings, expiry, group, tonumber(now_ms), lasts, now_ms + lasts, 0)
elseif expiry_of(settings, group) then
  drop_expiry(settings, expiry, group)
end
if known then return { 'known' } end
if limits ~= '' then redis.call('HSET', settings, limits_of(group), limits) end
redis.call('SADD', groups, group)
return { 'added' }
