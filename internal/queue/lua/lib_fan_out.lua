-- lib_fan_out.lua: how a claim gives due messages to all groups. It follows lib_claim.lua.
--
-- A message is for the groups that are registered when it becomes due. A claim can write only to
-- the queues of the groups that its caller names, as they were at a time (asof) by Redis's clock. A
-- registered group that is not named was added at that time or later, so messages that were due
-- before are not for it. A named group that is no longer registered gets nothing.

-- audience_of returns the names of the registered groups that the caller names, its own first, the
-- queues of the others, and a time in ms: messages due up to then are for just these groups. queues
-- has the queue of each named group; asof is when the caller read the groups, or 0.
local function audience_of(members, group, queues, asof, now_ms)
  local names, others, complete = { group }, {}, true
  for _, name in ipairs(members) do
    if queues[name] then
      names[#names + 1], others[#others + 1] = name, queues[name]
    elseif name ~= group then
      complete = false
    end
  end
  if complete then return { names = names, queues = others, till = math.huge } end
  -- If asof is in the future, the clock was set back, and asof proves nothing.
  return { names = names, queues = others, till = asof > 0 and asof <= now_ms and asof - 1 or -math.huge }
end

-- covered returns how many due messages, earliest first, are for just this audience.
local function covered(audience, due)
  for i = #due, 2, -2 do
    if tonumber(due[i]) <= audience.till then return i / 2 end
  end
  return 0
end

-- fan_out moves due messages from scheduled to the queues of all groups if they are for just this
-- audience, and returns how many there are. It removes them by id: Redis repeats a script if a
-- crash has torn the append-only file within it, and a repeated removal by rank would remove other
-- messages (docs/use/reliability.md).
local function fan_out(audience, due, queue, scheduled, refs)
  local count = covered(audience, due)
  if count == 0 then return 0 end
  local scores, moved, fields, names = {}, {}, {}, list_of(audience.names)
  for _, other in ipairs(audience.queues) do redis.call('ZCARD', other) end
  for i = 1, 2 * count, 2 do
    local j = 2 * count - i -- the last first; see add_leases
    moved[#moved + 1] = due[i]
    fields[i], fields[i + 1] = due[i], names
    scores[j], scores[j + 1] = due[i + 1], due[i]
  end
  if #audience.queues > 0 then redis.call('HSET', refs, unpack(fields)) end
  redis.call('ZADD', queue, unpack(scores))
  for _, other in ipairs(audience.queues) do redis.call('ZADD', other, unpack(scores)) end
  redis.call('ZREM', scheduled, unpack(moved))
  return count
end

-- still_scheduled returns the leased messages that also wait in scheduled, where a torn file may
-- leave them, with their due times; nil if the caller does not name all groups that they are for.
local function still_scheduled(ids, audience)
  local waiting, latest = {}, 0
  for i, due in ipairs(#ids > 0 and redis.call('ZMSCORE', scheduled, unpack(ids)) or {}) do
    if due then
      waiting[#waiting + 1] = ids[i]
      waiting[#waiting + 1] = due
      latest = math.max(latest, tonumber(due))
    end
  end
  if #waiting == 0 or latest <= audience().till then return waiting end
end

-- only_leased makes sure that leased messages do not also wait in scheduled or queue, where a torn
-- file may leave them. It gives messages from scheduled to all groups first. It returns false, and
-- changes nothing, if the caller does not name all groups that they are for.
local function only_leased(ids, audience)
  local waiting = still_scheduled(ids, audience)
  if not waiting then return false end
  if #waiting > 0 then fan_out(audience(), waiting, queue, scheduled, refs) end
  if #ids > 0 then redis.call('ZREM', queue, unpack(ids)) end
  return true
end

-- merge returns the first due messages of the queue and scheduled together. A torn file may leave some in both.
local function merge(queued, new, count)
  local list, is_queued, i, j = {}, {}, 1, 1
  for k = 1, #queued, 2 do is_queued[queued[k]] = true end
  while #list < 2 * count and (queued[i] or new[j]) do
    local n, score, other = #list, tonumber(queued[i + 1]), tonumber(new[j + 1])
    if queued[i] and (not new[j] or score < other or score == other and queued[i] < new[j]) then
      list[n + 1], list[n + 2] = queued[i], queued[i + 1]
      i = i + 2
    else
      if not is_queued[new[j]] then list[n + 1], list[n + 2] = new[j], new[j + 1] end
      j = j + 2
    end
  end
  return list
end
