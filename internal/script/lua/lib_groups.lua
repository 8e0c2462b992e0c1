-- lib_groups.lua: functions of the scripts that have groups, settings or consumers among their
-- KEYS. It follows lib.lua in front of them.

-- prepend puts a word in front of a list: unpack would fail on a long one.
local function prepend(word, list)
  table.insert(list, 1, word)
  return list
end

-- settings holds "paused" for all groups, "paused:G" and "retired:G",
-- which begin with a time in ms; "limits:G" and "rate:G" (lib_claim.lua); and "expiry:G"
-- (lib_expiry.lua).

-- tombstone returns 'retired' for a retired group, 'expired' for an expired group whose messages are not
-- freed yet, else nil.
local function tombstone(settings, group)
  local value = redis.call('HGET', settings, 'retired:' .. group)
  return value and (string.match(value, '^%d+ (expired)$') or 'retired') or nil
end

-- unknown reports whether a group is not registered; '' stands for all groups and is never unknown.
local function unknown(groups, group)
  return group ~= '' and redis.call('SISMEMBER', groups, group) == 0
end

-- pause_of is the field that holds the pause of a group, or of all groups.
local function pause_of(group) return group == '' and 'paused' or 'paused:' .. group end

local function limits_of(group) return 'limits:' .. group end

local function rate_of(group) return 'rate:' .. group end

-- halts_keys reports whether a dead message of a group halts its ordering key. The JSON at the end of the group's
-- limits says so.
local function halts_keys(settings, group)
  local limits = redis.call('HGET', settings, limits_of(group))
  return limits and string.find(limits, '"halts":true', 1, true) ~= nil
end

-- is_rule reports whether a field of settings is the same in all partitions: a pause, or limits.
local function is_rule(field) return string.match(field, '^paused') or string.match(field, '^limits:') end

-- note_alive records that a consumer counts as alive for some ms, as "<until> <seen> <since>
-- <about>", in ms. A new consumer removes a few that are no longer alive; the hash expires a day
-- after its last use, or later if the consumer counts as alive for longer. It must not fail: the
-- caller's writes stand.
local function note_alive(consumers, consumer, now_ms, alive_ms, about)
  if about == '' then return end
  local known = redis.pcall('HGET', consumers, consumer)
  local since = type(known) == 'string' and string.match(known, '^%d+ %d+ (%d+)')
  local alive = int(tonumber(now_ms) + alive_ms)
  redis.pcall('HSET', consumers, consumer, table.concat({ alive, now_ms, since or now_ms, about }, ' '))
  redis.pcall('PEXPIRE', consumers, math.max(DAY_MS, alive_ms))
  if since then return end
  local some = redis.pcall('HRANDFIELD', consumers, 16, 'WITHVALUES')
  for i = 1, #some, 2 do
    local till = tonumber(string.match(some[i + 1], '^%d+'))
    if not till or till <= tonumber(now_ms) then redis.pcall('HDEL', consumers, some[i]) end
  end
end

