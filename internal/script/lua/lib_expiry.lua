-- lib_expiry.lua: functions of the scripts that have expiry among their KEYS. It follows
-- lib_groups.lua in front of them.

-- A group that expires has a field "expiry:G" in settings, "<lasts> <ends> <noticed>", in ms: how
-- long it lasts without a live consumer, when it ends at the earliest, and when it was given notice
-- of its end, 0 if it was not. Its score in expiry is the time of the next check.

local SOON_MS = 10000 -- a group ends soon, and is checked, this long before its end
local NOTICE_MS = 9000 -- it must have had notice for this long
local CHECK_MS = 12 * HOUR_MS -- longest time between checks: the hash of consumers expires after a day

-- expiry_of reads when a group expires; nil if it does not.
local function expiry_of(settings, group)
  local value = redis.call('HGET', settings, 'expiry:' .. group)
  local lasts, ends, noticed = string.match(value or '', '^(%d+) (%d+) (%d+)$')
  return tonumber(lasts), tonumber(ends), tonumber(noticed)
end

-- write_expiry makes a group expire. It writes to the set expiry before it writes the field: a group
-- without the field is removed from the set again, but no process would check a group that is not in the
-- set. A group that was noticed gets a later score, so that it makes way for others.
local function write_expiry(settings, expiry, group, now_ms, lasts, ends, noticed)
  local check = noticed > 0 and noticed + NOTICE_MS or now_ms + CHECK_MS
  redis.call('ZADD', expiry, int(noticed > 0 and math.max(ends, check) or math.min(ends, check)), group)
  redis.call('HSET', settings, 'expiry:' .. group, int(lasts) .. ' ' .. int(ends) .. ' ' .. int(noticed))
end

-- drop_expiry removes the expiry of a group, which is to last or has ended.
local function drop_expiry(settings, expiry, group)
  redis.call('HDEL', settings, 'expiry:' .. group)
  redis.call('ZREM', expiry, group)
end

-- expiring_soon returns up to 100 groups that may end soon.
local function expiring_soon(expiry, now_ms)
  return redis.call('ZRANGEBYSCORE', expiry, '-inf', int(now_ms + SOON_MS), 'LIMIT', 0, 100)
end

