-- lib_expiry.lua: what the scripts share that have expiry among their KEYS. It follows
-- lib_groups.lua in front of them.

-- A group that expires has a field "expiry:G" in settings, "<lasts> <ends> <noticed>", in ms:
-- how long it lasts without a live consumer, when it ends at the earliest, and when a process
-- noticed that this is near, 0 if none has. In expiry, its score is when to look.

local NEAR_MS = 10000 -- a group is checked so long before it ends
local NOTICE_MS = 9000 -- and must be noticed so long before
local LOOK_MS = 12 * HOUR_MS -- and at least that often: the hash of consumers expires after a day

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
  local look = noticed > 0 and noticed + NOTICE_MS or now_ms + LOOK_MS
  redis.call('ZADD', expiry, int(noticed > 0 and math.max(ends, look) or math.min(ends, look)), group)
  redis.call('HSET', settings, 'expiry:' .. group, int(lasts) .. ' ' .. int(ends) .. ' ' .. int(noticed))
end

-- drop_expiry makes a group last, or ends the search for it.
local function drop_expiry(settings, expiry, group)
  redis.call('HDEL', settings, 'expiry:' .. group)
  redis.call('ZREM', expiry, group)
end

-- near names up to 100 groups that may end soon.
local function near(expiry, now_ms)
  return redis.call('ZRANGEBYSCORE', expiry, '-inf', int(now_ms + NEAR_MS), 'LIMIT', 0, 100)
end

