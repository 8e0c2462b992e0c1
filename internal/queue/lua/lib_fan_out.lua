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
  return { names = names, queues = others, till = asof <= now_ms and asof - 1 or -1 }
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
  local scores, moved = {}, {}
  for _, other in ipairs(audience.queues) do redis.call('ZCARD', other) end
  for i = 1, 2 * count, 2 do
    local j = 2 * count - i -- the last first; see add_leases
    moved[#moved + 1] = due[i]
    scores[j], scores[j + 1] = due[i + 1], due[i]
  end
  if #audience.queues > 0 then redis.call('HSET', refs, unpack(fields_of(moved, audience.names))) end
  redis.call('ZADD', queue, unpack(scores))
  for _, other in ipairs(audience.queues) do redis.call('ZADD', other, unpack(scores)) end
  redis.call('ZREM', scheduled, unpack(moved))
end

-- With many groups, naming them all is most of what a claim costs. So only one caller at a
-- time is asked to. control has under "fanout" until when, in ms, its turn lasts, 'w' if
-- others wait for it, else '-', and the caller.
local MANY_GROUPS = 17
local TURN_MS = 150

-- elect tells whether it is a caller's turn; if not, for how many µs it waits.
local function elect(control, caller, now, now_ms)
  local ends, waited, who = string.match(redis.call('HGET', control, 'fanout') or '', '^(%d+) (.)(.*)$')
  ends = tonumber(ends) or 0
  -- A turn that ends too late is from before the clock was set back.
  if ends > now_ms and ends <= now_ms + TURN_MS then
    if who == caller then return true end
    if waited ~= 'w' then redis.call('HSET', control, 'fanout', int(ends) .. ' w' .. who) end
    return false, ends * 1000 - now
  end
  redis.call('HSET', control, 'fanout', int(now_ms + TURN_MS) .. ' -' .. caller)
  return true
end

-- end_turn wakes those that wait for a fan-out.
local function end_turn(control, channel)
  local turn = redis.call('HGET', control, 'fanout')
  if not turn then return end
  redis.call('HDEL', control, 'fanout')
  if string.match(turn, '^%d+ w') then redis.pcall(NOTIFY, channel, '0') end
end
