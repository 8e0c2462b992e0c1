-- lib_fan_out.lua: how a claim gives due messages to all groups. It follows lib_claim.lua.
--
-- A message is for the groups that are registered when it falls due. A claim can write to the
-- queues of the groups that its caller names, as they were at a time by Redis's clock. A
-- registered group that the caller does not name came at that time or later, so what was due
-- before is not for it. A named group that is gone gets nothing.

-- audience_of returns the names of the registered groups that a caller knows, its own first,
-- the queues of the others, and until which due time, in ms, messages are for just these.
-- queues has the queue of each group that the caller names; asof is when it knew them, or 0.
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
  -- A clock that was set back makes the time worthless.
  return { names = names, queues = others, till = asof > 0 and asof <= now_ms and asof - 1 or -math.huge }
end

-- covered is how many of some due messages, the earliest first, are for just this audience.
local function covered(audience, due)
  for i = #due, 2, -2 do
    if tonumber(due[i]) <= audience.till then return i / 2 end
  end
  return 0
end

-- fan_out moves the first count of some due messages from scheduled to the queues of all
-- groups. It removes them by id: a removal by rank would remove other messages if Redis
-- repeated it, as it does with an append-only file that a crash has torn in the middle of a
-- script (docs/use/reliability.md).
local function fan_out(audience, due, count, queue, scheduled, refs)
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
end
