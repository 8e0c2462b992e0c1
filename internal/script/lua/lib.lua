-- lib.lua: functions that all scripts except put.lua use. script.go puts it in front of them, after a
-- line that names the KEYS and NOTIFY, the command that publishes a notification. It calls Redis only
-- inside its functions.

-- now_us returns Redis's clock in whole microseconds and, rounded down, in milliseconds. The latter
-- are text, because formatting a number takes Lua as long as a small command. A script reads the
-- clock once, because on Redis 7.0 it advances while a script runs.
local function now_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2], t[1] .. string.format('%03d', math.floor(t[2] / 1000))
end

-- columns reads ARGV, from first on, as rows of width values, one row for each message.
-- It returns a list for each column.
local function columns(first, width)
  local lists = {}
  for column = 1, width do
    local list, n = {}, 0
    for i = first + column - 1, #ARGV, width do
      n = n + 1
      list[n] = ARGV[i]
    end
    lists[column] = list
  end
  return unpack(lists)
end

-- expect_hashes and expect_zsets fail if a key holds a value of another type. A script
-- calls them, before it writes, for the keys that it has not read: a failure between its
-- writes would leave it half done.
local function expect_hashes(...)
  for _, key in ipairs({ ... }) do redis.call('HLEN', key) end
end

local function expect_zsets(...)
  for _, key in ipairs({ ... }) do redis.call('ZCARD', key) end
end

-- begin_writes is the first write of a script and removes nothing. When maxmemory is
-- reached, Redis refuses a first write that may need memory, but allows all writes
-- after one that may free some. A user who may not remove is refused here, before
-- the script adds anything.
local function begin_writes(zset) redis.call('ZREM', zset, '') end

-- due_ms returns a due time as a score: whole milliseconds, rounded up, so no message is due early.
-- A message without a delay is due in the current millisecond.
local function due_ms(now, delay)
  if delay <= 0 then return math.floor(now / 1000) end
  return math.ceil(now / 1000) + delay
end

-- int formats a number without the exponent that Lua's own %.14g may choose.
local function int(n) return string.format('%.0f', n) end

-- An id is a ULID of 26 characters. If the message has an ordering key, "=", the length of that key, ","
-- and the key follow. If the message has a key, ":" and the key follow.

-- key_of returns the message key in an id; nil if it has none.
local function key_of(id)
  if #id <= 27 then return end
  local from, length, rest = 27, string.match(id, '^=(%d+),()', 27)
  if length then from = rest + length end
  if from < #id then return string.sub(id, from + 1) end
end

-- IN_LINE is added to the due time of a message that waits in its group's queue for its ordering key (lib_order.lua):
-- 2^52 ms, later than any due time.
local IN_LINE = 4503599627370496

-- An entry of attempts has the deliveries of a message in a group as "token/seen/unsure". token
-- counts its claims and never repeats. seen counts the deliveries that a handler has certainly seen
-- and not acked. unsure counts the claims that were lost with their consumer, so a handler may have
-- seen them; it includes the current claim unless that is the first. A first claim leaves no entry.
-- A garbled entry counts as one claim.
local function split(entry)
  local token, seen, unsure = string.match(entry, '^(%d+)/(%d+)/(%d+)$')
  if not token then return 1, 0, 0 end
  return tonumber(token), tonumber(seen), tonumber(unsure)
end

local function entry_of(token, seen, unsure)
  return string.format('%.0f/%.0f/%.0f', token, seen, unsure)
end

-- confirmed returns the entry after a handler has seen the delivery with this receipt. It depends
-- only on the receipt, so writing it twice counts once.
local function confirmed(receipt)
  local token, seen, unsure = split(receipt)
  unsure = math.max(0, unsure - 1)
  return entry_of(token, seen + 1, unsure), seen + 1, unsure
end

-- unseen returns the entry after that delivery was released before a handler saw it.
local function unseen(receipt)
  local token, seen, unsure = split(receipt)
  return entry_of(token, seen, math.max(0, unsure - 1))
end

-- exhausted returns the reason to bury a message; nil while it may still be delivered.
local function exhausted(seen, unsure, max)
  if max == 0 or seen + unsure < max then return end
  local reason = 'not acked in ' .. int(seen) .. ' deliveries'
  if seen >= max then return reason end
  return reason .. ', and lost with its consumer ' .. int(unsure) .. ' times'
end

-- next_entry returns the entry of the next delivery of a message that was claimed before, and the
-- reason to bury it, if any. A released message is certainly unseen only if it was claimed once;
-- after several claims, an earlier consumer may have died with it.
local function next_entry(entry, lost, max)
  local token, seen, unsure = split(entry)
  local reason = exhausted(seen, unsure, max)
  if lost or token > 1 or seen + unsure > 0 then unsure = unsure + 1 end
  return entry_of(token + 1, seen, unsure), reason
end

-- A receipt names a delivery: "1" for a first claim, else the entry as the claim
-- wrote it. Only its token shows whether the delivery is current: the rest may change.
local function token_of(receipt)
  return string.match(receipt, '^(%d+)/%d+/%d+$')
end

-- same_token reports whether an entry, if there is one, belongs to the delivery with a receipt.
local function same_token(entry, receipt)
  entry = entry or '1'
  return entry == receipt or (token_of(entry) or '1') == (token_of(receipt) or receipt)
end

-- current reports which deliveries are current: the message is in unack, and no consumer has
-- claimed it since, even if the lease has expired. All settlements and extensions obey this rule:
-- with another receipt, they have no effect and are reported as stale. A message in unack without
-- an entry has the receipt "1". current also returns the entries and the leases.
local function current(unack, attempts, ids, receipts)
  local holds = {}
  if #ids == 0 then return holds, {}, {} end
  local leases = redis.call('ZMSCORE', unack, unpack(ids))
  local entries = redis.call('HMGET', attempts, unpack(ids))
  for i = 1, #ids do
    holds[i] = leases[i] and same_token(entries[i], receipts[i])
  end
  return holds, entries, leases
end

-- A message loses its key when it becomes a dead message. Until a new message takes the key, the key has
-- DEAD_MARK and the old id, so that cancel and reschedule find the dead message.
local DEAD_MARK = '!'

-- free removes the key of a message that no group needs, unless a newer message has taken it.
local function free(keys, id)
  local key = key_of(id)
  local holder = key and redis.call('HGET', keys, key)
  if holder and (holder == id or holder == DEAD_MARK .. id) then redis.call('HDEL', keys, key) end
end

-- bury makes a message a dead message. The caller removes it from the group's other sets.
-- Its body and its entry stay; its key is free again.
local function bury(dead, reasons, keys, id, now, reason)
  local key = key_of(id)
  redis.call('HSET', reasons, id, reason)
  if key and redis.call('HGET', keys, key) == id then redis.call('HSET', keys, key, DEAD_MARK .. id) end
  redis.call('ZADD', dead, int(math.floor(now / 1000)), id)
end

-- why_dead returns why a message is dead, if it is. A call that buried it, and is repeated after a
-- lost reply, gets the same answer.
local function why_dead(dead, reasons, id)
  return redis.call('ZSCORE', dead, id) and redis.call('HGET', reasons, id)
end

-- A record remembers the last numbered call of a publisher, a consumer, or a caller of
-- cancel and reschedule: "<number> <when, ms> <result>".
local function parse_record(value)
  local number, ms, result = string.match(value, '^(%d+) (%d+) ?(.*)$')
  return tonumber(number), tonumber(ms), result
end

-- recorded reads a record. Without a record, the number is 0.
local function recorded(hash, owner)
  local number, ms, result = parse_record(redis.call('HGET', hash, owner) or '0 0')
  return number or 0, number and number > 0 and ms or nil, result or ''
end

local DAY_MS = 86400000
local HOUR_MS = 3600000
local FEW = 1000 -- entries that Redis frees at once without a noticeable delay

-- may_expire lets a key expire in some ms if it is small. The expiry of a large key would block
-- Redis, for half a second with a million entries, so sweep.lua first removes its entries. It must
-- not fail: the caller's writes stand.
local function may_expire(key, size, ms)
  if (tonumber(size) or 0) > FEW then
    redis.pcall('PERSIST', key)
  else
    redis.pcall('PEXPIRE', key, ms)
  end
end

-- write_record stores a record and keeps its hash small. The hash expires a day after its last use,
-- unless it is large; the expiry is renewed once an hour, not on each call. The first record of an
-- owner also removes a few random records that are a day old. Redis may refuse this cleanup, which
-- must not fail, because the caller's writes stand.
local function write_record(hash, owner, number, now_ms, result, last_ms)
  redis.call('HSET', hash, owner, number .. ' ' .. now_ms .. ' ' .. result)
  local ms = tonumber(now_ms)
  if last_ms and math.floor(last_ms / HOUR_MS) == math.floor(ms / HOUR_MS) then return end
  may_expire(hash, redis.pcall('HLEN', hash), DAY_MS + HOUR_MS)
  if last_ms then return end
  local some = redis.pcall('HRANDFIELD', hash, 16, 'WITHVALUES')
  for i = 1, #some, 2 do
    local _, written = parse_record(some[i + 1])
    if not written or ms - written > DAY_MS then redis.pcall('HDEL', hash, some[i]) end
  end
end

-- head returns the lowest score of a sorted set; nil if it is empty, or all its messages wait in line.
local function head(zset)
  local score = tonumber(redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2])
  return score and score < IN_LINE and score or nil
end

-- wake notifies sleeping subscribers in how many µs a message is due. It is a hint: if it is lost,
-- or the user may not send it, they are late by at most their poll interval.
local function wake(channel, now, due, group)
  local wait = int(math.max(0, due * 1000 - now))
  if group then wait = wait .. ' ' .. group end
  redis.pcall(NOTIFY, channel, wait)
end

-- release_capacity wakes a group that was at its limit if unack has capacity again, and reports
-- whether it did. at_limit has the limit that the group was at.
local function release_capacity(at_limit, unack, channel, group)
  local limit = redis.call('HGET', at_limit, group)
  if not limit or redis.call('ZCARD', unack) >= (tonumber(limit) or math.huge) then return false end
  redis.call('HDEL', at_limit, group)
  wake(channel, 0, 0, group)
  return true
end
