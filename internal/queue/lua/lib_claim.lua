-- lib_claim.lua: what claim.lua needs to look for messages, and what holds a group back:
-- pauses and limits. It follows lib_groups.lua.

-- due_of returns due messages and when they were due, the earliest first.
local function due_of(zset, now_ms, count)
  if count <= 0 then return {} end
  return redis.call('ZRANGEBYSCORE', zset, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, count)
end

-- ids_of are the ids in such a list.
local function ids_of(list)
  local ids = {}
  for i = 1, #list, 2 do ids[#ids + 1] = list[i] end
  return ids
end

-- add_leases adds the last first: Redis searches a small set from its start.
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

-- remove_due removes the due messages of a batch from where they were. Those in line wait in the queue.
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

-- Besides pauses, settings has for a group with limits "limits:G", "<in flight> <interval>
-- <burst> ...": how many messages it may hold in this partition, 0 for any number; the µs
-- from one claimed message to the next at its rate, 0 for any rate; and how many it may
-- claim at once when it has been idle. "rate:G" is when, in µs, its whole burst is back.

-- rules_of returns until when a group is paused, in ms, 0 for no end, nil if it is not; and
-- its limits, nil if it has none.
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
    -- A clock that was set back must not hold the group up for longer than its burst.
    local back, latest = tonumber(fields[4]) or 0, now + limits.burst * limits.interval
    limits.late = back > latest
    limits.back = math.min(math.max(now, back), latest)
  end
  return pause_ends, limits
end

-- allowed returns how many messages that are not in delivery yet a group may claim, its capacity,
-- below 0 if it has too many; and how many messages in all. Without limits, any number.
local function allowed(limits, unack, now)
  local capacity, tokens = math.huge, math.huge
  if not limits then return capacity, tokens end
  if limits.in_flight > 0 then capacity = limits.in_flight - redis.call('ZCARD', unack) end
  if limits.interval > 0 then
    tokens = math.floor((now - limits.back) / limits.interval + limits.burst + 1e-6)
  end
  return capacity, tokens
end

-- spend counts messages that are about to be claimed. It also keeps a corrected time: else
-- each claim would put it off again.
local function spend(limits, settings, group, count)
  if limits.interval == 0 or count == 0 and not limits.late then return end
  limits.back = limits.back + count * limits.interval
  redis.call('HSET', settings, rate_of(group), int(math.ceil(limits.back)))
end

-- wait_for_limits is for how many µs limits keep a group from what is due. A call that releases
-- capacity before sees at_limit, and wakes the group.
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
