-- lib_claim.lua: functions of claim.lua that find messages and apply the group's pauses and limits.
-- It follows lib_groups.lua.

-- due_of returns due messages with their due times, earliest first.
local function due_of(zset, now_ms, count)
  if count <= 0 then return {} end
  return redis.call('ZRANGEBYSCORE', zset, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, count)
end

-- ids_of returns the ids in such a list.
local function ids_of(list)
  local ids = {}
  for i = 1, #list, 2 do ids[#ids + 1] = list[i] end
  return ids
end

-- add_leases adds the ids in reverse, because Redis searches a small set from its start.
local function add_leases(unack, ids, deadline)
  if #ids == 0 then return end
  local leases, n = {}, 0
  for i = #ids, 1, -1 do
    leases[n + 1], leases[n + 2] = deadline, ids[i]
    n = n + 2
  end
  redis.call('ZADD', unack, unpack(leases))
end

-- earliest is the lowest score of several sorted sets, nil when all are empty.
local function earliest(...)
  local first
  for _, zset in ipairs({ ... }) do
    local score = head(zset)
    if score and (not first or score < first) then first = score end
  end
  return first
end

-- begins_exhausted reports whether the first due message must be buried. Only then does a claim
-- check more messages than it may lease, since checking costs more than leasing.
local function begins_exhausted(zset, attempts, now_ms, max)
  local id = due_of(zset, now_ms, 1)[1]
  if not id then return false end
  local _, seen, unsure = split(redis.call('HGET', attempts, id) or '')
  return exhausted(seen, unsure, max) ~= nil
end

-- texts_of reads the bodies of messages and, as a list of indexes and values, the group's own metadata.
local function texts_of(ids, has_metadata)
  if #ids == 0 then return {}, {} end
  local list = {}
  for i, metadata in ipairs(has_metadata and redis.call('HMGET', nack_metadata, unpack(ids)) or {}) do
    if metadata then list[#list + 1], list[#list + 2] = i, metadata end
  end
  return redis.call('HMGET', messages, unpack(ids)), list
end

-- remove_due removes the due messages of a batch from their set. Messages in line stay in the queue.
local function remove_due(batch, source)
  if batch.due_count == 0 then return end
  if source ~= queue then redis.call('ZREM', scheduled, unpack(batch.due, 1, batch.due_count)) end
  if source == scheduled then return end
  local waits, gone = {}, {}
  for _, id in ipairs(batch.waiting) do waits[id] = true end
  for i = 1, batch.due_count do
    local id = batch.due[i]
    if not waits[id] then gone[#gone + 1] = id end
  end
  if #gone > 0 then redis.call('ZREM', queue, unpack(gone)) end
end

-- "limits:G" in settings has the limits of a group: "<in flight> <interval> <burst> ...". in flight
-- is how many messages it may hold in this partition, interval the µs between claimed messages at
-- its rate (0: no limit), and burst how many messages it may claim at once after it has been idle.
-- "rate:G" is the time, in µs, when the whole burst is available again.

-- rules_of returns when the group's pause ends, in ms (0: never, nil: not paused), and its limits
-- (nil: none).
local function rules_of(settings, group, now)
  if redis.call('HLEN', settings) == 0 then return end
  local fields = redis.call('HMGET', settings, 'paused', pause_of(group), limits_of(group), rate_of(group))
  local pause_ends, limits
  for i = 1, 2 do
    local ends = fields[i] and tonumber(string.match(fields[i], '^%d+'))
    if ends and (ends == 0 or ends * 1000 > now) and pause_ends ~= 0 then
      pause_ends = ends == 0 and 0 or math.max(ends, pause_ends or 0)
    end
  end
  local in_flight, interval, burst = string.match(fields[3] or '', '^(%d+) ([%d.]+) (%d+)')
  if in_flight then
    limits = { in_flight = tonumber(in_flight), interval = tonumber(interval), burst = tonumber(burst) }
    -- If the clock was set back, the group must not wait longer than its burst takes.
    local back, latest = tonumber(fields[4]) or 0, now + limits.burst * limits.interval
    limits.late = back > latest
    limits.back = math.min(math.max(now, back), latest)
  end
  return pause_ends, limits
end

-- allowed returns the capacity of a group, which is how many messages it may add to unack (below 0 if it holds too many), and how
-- many messages it may claim in all. Without limits, both are infinite.
local function allowed(limits, unack, now)
  local capacity, tokens = math.huge, math.huge
  if not limits then return capacity, tokens end
  if limits.in_flight > 0 then capacity = limits.in_flight - redis.call('ZCARD', unack) end
  if limits.interval > 0 then
    tokens = math.floor((now - limits.back) / limits.interval + limits.burst + 1e-6)
  end
  return capacity, tokens
end

-- spend charges messages that are about to be claimed to the rate. It also stores a corrected time,
-- because otherwise each claim would postpone it again.
local function spend(limits, settings, group, count)
  if limits.interval == 0 or count == 0 and not limits.late then return end
  limits.back = limits.back + count * limits.interval
  redis.call('HSET', settings, rate_of(group), int(math.ceil(limits.back)))
end

-- wait_for_limits returns for how many µs the limits keep a group from due messages. A call that
-- releases capacity earlier finds the group in at_limit, and wakes it.
local function wait_for_limits(limits, unack, at_limit, group, now)
  local wait = 0
  if limits.in_flight > 0 and redis.call('ZCARD', unack) >= limits.in_flight then
    redis.call('HSET', at_limit, group, int(limits.in_flight))
    wait = head(unack) * 1000 - now
  end
  if limits.interval > 0 then
    wait = math.max(wait, limits.back - (limits.burst - 1) * limits.interval - now)
  end
  return math.max(0, math.ceil(wait))
end
