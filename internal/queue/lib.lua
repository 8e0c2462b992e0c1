-- lib.lua: what the scripts share. It is put in front of each of them when it
-- is compiled; it calls Redis only inside its functions. NOTIFY, the command that
-- publishes a notification, is put in front of it (scripts.go).

-- now_us is Redis's clock in whole microseconds and, written out, in milliseconds
-- cut off: to write a number takes Lua as long as a small command. TIME goes on
-- while a script runs (Redis 7.0), so every script reads it once.
local function now_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2], t[1] .. string.format('%03d', math.floor(t[2] / 1000))
end

-- due_ms is a due time as a score: whole milliseconds, rounded up, so that
-- nothing is due early. What has no delay is due in the millisecond that is.
local function due_ms(now, delay)
  if delay <= 0 then return math.floor(now / 1000) end
  return math.ceil(now / 1000) + delay
end

-- int writes a number without the exponent that Lua's own %.14g may choose.
local function int(n) return string.format('%.0f', n) end

-- key_of is the message key that an id carries: a ULID of 26 characters, then,
-- if the message has a key, a colon and that key.
local function key_of(id)
  if #id > 27 then return string.sub(id, 28) end
end

-- A token fences one delivery of a message to a group: the deliveries so far
-- and, once a consumer gave the message back unhandled, how often that happened.
-- "2" is the second delivery, "2/1" the same after one release. A garbled one counts
-- as a first delivery, so that it holds nothing up.
local function split(token)
  local deliveries, releases = string.match(token, '^(%d+)/?(%d*)$')
  return tonumber(deliveries) or 1, tonumber(releases) or 0
end

local function token(deliveries, releases)
  if releases == 0 then return int(deliveries) end
  return int(deliveries) .. '/' .. int(releases)
end

-- current tells which deliveries still hold their message: it is in the unack
-- set and the token is the last one given out. A first delivery leaves no
-- attempts entry, so no entry stands for "1".
local function current(unack, attempts, ids, tokens)
  local holds = {}
  if #ids == 0 then return holds end
  local leases = redis.call('ZMSCORE', unack, unpack(ids))
  local last = redis.call('HMGET', attempts, unpack(ids))
  for i = 1, #ids do
    holds[i] = leases[i] and (last[i] or '1') == tokens[i]
  end
  return holds
end

-- free gives the key of a message back, unless a newer message has taken it.
local function free(keys, id)
  local key = key_of(id)
  if key and redis.call('HGET', keys, key) == id then
    redis.call('HDEL', keys, key)
  end
end

-- finish ends messages for one group. The last group to finish takes the body;
-- messages that only ever had one group have no refs entry.
local function finish(messages, refs, changed, keys, ids)
  local gone, left = ids, {}
  local several = redis.call('HLEN', refs) > 0
  if several then
    gone = {}
    redis.call('HDEL', changed, unpack(ids))
    local counts = redis.call('HMGET', refs, unpack(ids))
    for i, id in ipairs(ids) do
      local count = tonumber(counts[i] or 1) - 1
      if count > 0 then
        left[#left + 1] = id
        left[#left + 1] = int(count)
      else
        gone[#gone + 1] = id
      end
    end
  end
  if #left > 0 then redis.call('HSET', refs, unpack(left)) end
  if #gone == 0 then return end
  if several then redis.call('HDEL', refs, unpack(gone)) end
  redis.call('HDEL', messages, unpack(gone))
  if redis.call('HLEN', keys) == 0 then return end
  for _, id in ipairs(gone) do free(keys, id) end
end

-- bury makes a message that has left every other set of the group a dead
-- letter. Its body and its token stay; a key that it holds is free again.
local function bury(dead, reasons, keys, id, now, reason)
  redis.call('HSET', reasons, id, reason)
  free(keys, id)
  redis.call('ZADD', dead, int(math.floor(now / 1000)), id)
end

-- A record remembers the last numbered call of a publisher or a consumer:
-- "<number> <when, ms> <result>".
local function parse_record(value)
  local number, ms, result = string.match(value, '^(%d+) (%d+) ?(.*)$')
  return tonumber(number), tonumber(ms), result
end

local DAY_MS = 86400000
local HOUR_MS = 3600000

-- write_record stores a record and bounds the hash that it is in: the hash
-- expires a day after its last use (set anew once an hour, not on each call),
-- and whoever joins looks at a few records at random and drops those a day old.
-- That may be refused: what the caller has written stands, so it must not fail.
local function write_record(hash, owner, number, now_ms, result, last_ms)
  redis.call('HSET', hash, owner, number .. ' ' .. now_ms .. ' ' .. result)
  local ms = tonumber(now_ms)
  if last_ms and math.floor(last_ms / HOUR_MS) == math.floor(ms / HOUR_MS) then return end
  redis.pcall('PEXPIRE', hash, DAY_MS + HOUR_MS)
  if last_ms then return end
  local some = redis.pcall('HRANDFIELD', hash, 16, 'WITHVALUES')
  for i = 1, #some, 2 do
    local _, written = parse_record(some[i + 1])
    if not written or ms - written > DAY_MS then redis.pcall('HDEL', hash, some[i]) end
  end
end

-- differ tells whether the groups are others than the caller knows: those in
-- ARGV[from..] and, if given, one more. KEYS were chosen by that list.
local function differ(members, from, one)
  local known, count = {}, #ARGV - from + 1
  if one then
    known[one] = true
    count = count + 1
  end
  for i = from, #ARGV do known[ARGV[i]] = true end
  if #members ~= count then return true end
  for _, name in ipairs(members) do
    if not known[name] then return true end
  end
  return false
end

-- head is the lowest score of a sorted set, nil when it is empty.
local function head(zset)
  return tonumber(redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2])
end

-- wake tells sleeping subscribers how many µs from now something is due.
-- It is a hint: losing it, or having no right to send it, costs them at most
-- their poll interval.
local function wake(channel, now, due, group)
  local wait = int(math.max(0, due * 1000 - now))
  if group then wait = wait .. ' ' .. group end
  redis.pcall(NOTIFY, channel, wait)
end

