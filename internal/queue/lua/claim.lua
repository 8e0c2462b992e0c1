-- claim.lua: lease due messages of one group to one consumer.
--
-- A message waits in scheduled. The first claim that finds it due moves it to the queues of all groups
-- (lib_fan_out.lua), or leases it at once if there is only one group. A lease moves it to unack, with
-- the end of the lease as its score, and gives it a receipt, which the settlement has to name.
-- A claim, in this order: a request that is sent again gets what it got (lib_claim_again.lua); what
-- holds the group back, such as a pause or a limit (lib_claim.lua), says how much to take; messages
-- whose leases ran out come first, then due ones; each is leased, buried if it had too many deliveries,
-- or sent in line while its ordering key is busy (lib_claim_order.lua). What a message
-- is added to is written before what it leaves. The reply says when to claim again.
-- An idle consumer's claim ends in lib_idle.lua, before this begins.
--
-- KEYS     scheduled, messages, groups, refs, keys, queue, unack, attempts, claims, dead, reasons,
--          nack_metadata, settings, consumers, at_limit, partitions, expiry, turns, blocked; for each group: queue
-- ARGV[1]   group
-- ARGV[2]   consumer
-- ARGV[3]   request  integer; the same request again gets the same messages, as far as they fit
-- ARGV[4]   limit    integer, 1..1000
-- ARGV[5]   free     integer, 0..limit: the consumer's free workers. Messages claimed before
--                    (except those released unseen once) need one; the claim stops at the
--                    first without
-- ARGV[6]   lease    ms
-- ARGV[7]   max deliveries, 0 for no limit
-- ARGV[8]   bytes    of text to return at most, unless the first message has more
-- ARGV[9]   channel  where subscribers listen for notifications
-- ARGV[10]  alive    for how many ms the consumer counts as alive
-- ARGV[11]  about    the consumer, for people; '' to record nothing
-- ARGV[12]  asof     ms by Redis's clock: when the groups that follow were all others; 0 if
--                    none are named
-- ARGV[13..]  other groups, in the order of their queues; see lib_fan_out.lua. Only what has
--             fallen due for all groups needs them
-- Returns  { 'groups', now in ms, name, ... } if the caller has to name these groups, or is
--            not one of them and has to register; no message was leased
--          { 'claimed', now in ms, lease deadline in ms, µs until the next is due or -1 if none
--            will be or -2 if the next is only for a free worker, or below -2 if a later request
--            is recorded: -2 less its number, and nothing else,
--            'due receipt due receipt ...' with due in ms, { id, ... }, { body, ... },
--            { index, metadata, ... } of those with their own,
--            { id, reason, ... } of those that were dead-lettered,
--            how many partitions there are if more than one, 1 if groups may end soon else 0 }

local group, consumer, request = ARGV[1], ARGV[2], tonumber(ARGV[3])
local limit, free_workers, lease_ms = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local max_deliveries, max_bytes, channel = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local alive_ms, about, asof = tonumber(ARGV[10]), ARGV[11], tonumber(ARGV[12])
local now, now_ms = now_us()
local deadline = int(math.ceil(now / 1000) + lease_ms)

-- These reads come first: lib_idle.lua has checked the types of the other keys.
local group_count = redis.call('SCARD', groups)
local partition_count = tonumber(redis.call('GET', partitions)) or 0
local expiring = #near(expiry, tonumber(now_ms)) > 0 and 1 or 0
local has_metadata = redis.call('HLEN', nack_metadata) > 0
local has_attempts = redis.call('HLEN', attempts) > 0
local has_turns = redis.call('HLEN', turns) > 0 or redis.call('ZCARD', blocked) > 0
if has_turns then redis.call('ZRANGEBYLEX', blocked, '+', '-') end -- see lines_of

-- ask makes the caller name the groups, or register its own.
local function ask() return answer('groups', answer(now_ms, redis.call('SMEMBERS', groups))) end

-- reply gives a batch, nil for nothing. Its details, due times and receipts, are one text, since
-- each value of a reply is slow.
local function reply(wait, batch)
  batch = batch or { details = '', ids = {}, bodies = {}, metadata = {}, buried = {} }
  return {
    'claimed', tonumber(now_ms), tonumber(batch.deadline or deadline), wait, batch.details, batch.ids, batch.bodies,
    batch.metadata, batch.buried, partition_count, expiring,
  }
end

-- audience are the groups that messages are for when they become due. It is made when a claim needs it, since
-- that takes time for each group.
local made_audience
local function audience()
  if made_audience then return made_audience end
  local queues = {}
  for i = EACH_FROM, #KEYS do queues[ARGV[i - EACH_FROM + 13]] = KEYS[i] end
  local members = group_count > 1 and redis.call('SMEMBERS', groups) or {}
  made_audience = audience_of(members, group, queues, asof, tonumber(now_ms))
  return made_audience
end

if unknown(groups, group) then return ask() end
local number, last_ms, result = recorded(claims, consumer)
-- An older request gets no messages. Either it is a late copy, whose caller has had the answer; or the memory
-- of its caller was set back, and the caller goes on from the number in this reply.
if number > request then return reply(-2 - number) end
if number == request then
  local held = held_again(result)
  local batch, back = fitting(held, limit, max_bytes, now_ms, has_metadata)
  batch.bodies, batch.metadata = texts_of(batch.ids, has_metadata)
  begin_writes(unack)
  if not only_leased(held.ids, audience) then return ask() end
  write_record(claims, consumer, ARGV[3], now_ms, cjson.encode({ held.deadline, batch.details, batch.ids, held.recorded }), last_ms)
  give_back(back, group, channel, now)
  return reply(0, batch)
end

-- plan returns the budget of the claim:
--   pause_ends, limits  the group's pause and limits, and scarce, whether they leave room for few messages
--   limit               how many messages the claim may lease, and capacity, how many that are not in unack yet
--   reach               how many it reads; beyond is set if these are more than the limit, because the first
--                       message must be buried or waits for its ordering key
--   halts               whether dead messages halt ordering keys
local function plan()
  local CLAIMS_AHEAD = 4 -- messages are held ahead while the limits have room for so many claims
  local MAX_BURIED = 100 -- messages that a claim may bury beyond its limit
  local MAX_IN_LINE = 500 -- messages that a claim may send in line beyond its limit
  local pause_ends, limits = rules_of(settings, group, now)
  local capacity, tokens = allowed(limits, unack, now)
  local scarce, max_count = math.min(capacity, tokens) < CLAIMS_AHEAD * limit, limit
  if scarce then max_count = math.min(max_count, tokens, free_workers) end
  if pause_ends then max_count = 0 end
  local burying = max_count > 0 and max_deliveries > 0 and has_attempts
    and (begins_exhausted(unack, attempts, now_ms, max_deliveries)
      or begins_exhausted(queue, attempts, now_ms, max_deliveries))
  local lining_up = max_count > 0 and has_turns and (begins_busy(scheduled, now_ms) or begins_busy(queue, now_ms))
  local beyond = lining_up and MAX_IN_LINE or burying and MAX_BURIED
  return {
    pause_ends = pause_ends, limits = limits, scarce = scarce, limit = max_count, capacity = capacity,
    beyond = beyond, reach = math.max(max_count, beyond or 0), halts = has_turns and halts_keys(settings, group),
  }
end

-- find_due returns due messages, in the order of their due times, and the set they are in: the
-- group's queue with retries and, with several groups, new messages. With only one group, new ones
-- are in scheduled; no set means that some may be in either. It returns nothing if the caller has to name the groups.
local function find_due(budget, lost)
  local MAX_ENTRIES = 4000 -- that one call adds to the queues of all groups together
  local after = #lost / 2
  local count = budget.beyond and budget.reach - after or math.min(budget.limit - after, math.max(0, budget.capacity))
  local due = due_of(scheduled, now_ms, math.min(count, math.max(1, math.floor(MAX_ENTRIES / group_count))))
  if #due == 0 then return due_of(queue, now_ms, count), queue end
  if group_count == 1 then
    local till = #due < 2 * count and now_ms or due[#due] -- what comes after so many new ones is not for this claim
    local queued = due_of(queue, till, count)
    if #queued == 0 then return due, scheduled end
    return merge(queued, due, count)
  end
  local first, retry = tonumber(due[2]), head(queue)
  if fan_out(audience(), due, queue, scheduled, refs) then return due_of(queue, now_ms, count), queue end
  -- The caller does not know the latest groups, which new messages must be given to. It need not learn them
  -- while the queue of its own group has messages that are due before the new ones.
  if asof > 0 and (after > 0 or retry and retry <= first) then
    local before = due_of(queue, due[2], count)
    if still_scheduled(ids_of(before), audience) then return before, queue end
  end
end

-- consider adds messages of a list to a batch, until something stops it: those to lease, those to bury, and
-- those to send in line. It reads no bodies: one beyond the limit of bytes must not be copied in Redis's
-- memory. It returns the ids of the list, and how many of them are in the batch.
local function consider(batch, list, lost, max_count)
  local RELEASED_ONCE = '2/0/0' -- entry of a message that was released unseen once
  local call = redis.call -- looked up once: the loop is long
  if #list == 0 then return list, 0 end
  local ids, n, details, written, buried = ids_of(list), #batch.ids, batch.details, batch.entries, batch.buried
  local entries = has_attempts and call('HMGET', attempts, unpack(ids)) or {}
  local lines
  for i, id in ipairs(ids) do
    if i % LINES_AT_ONCE == 1 then lines = lines_in(batch, ids, i) end
    local entry, line, reason = entries[i] or lost and '1', lines[i], nil
    if entry then entry, reason = next_entry(entry, lost, max_deliveries) end
    local waits = line and not reason and is_busy(batch, line, id)
    local length = waits and 0 or call('HSTRLEN', messages, id)
    if length == 0 and not (waits or reason) and call('HEXISTS', messages, id) == 0 then
      reason = 'message body is missing'
    end
    if has_metadata then length = length + call('HSTRLEN', nack_metadata, id) end
    local again = entry and entry ~= RELEASED_ONCE
    if reason then
      buried[#buried + 1], buried[#buried + 2] = id, reason
    elseif waits then
      send_in_line(batch, line, id, list[2 * i])
      if lost and not entries[i] then -- else its next claim would have the receipt of the lost one
        written[#written + 1], written[#written + 2] = id, unseen(entry)
      end
    else
      batch.stop = n >= max_count and 'limit'
        or again and n >= free_workers and 'worker'
        or n > 0 and batch.bytes + length > max_bytes and 'bytes'
      if batch.stop then return ids, i - 1 end
      batch.bytes, n = batch.bytes + length, n + 1
      batch.ids[n], details[2 * n - 1], details[2 * n] = id, list[2 * i], entry or '1'
      if entry then written[#written + 1], written[#written + 2] = id, entry end
      if line then give_turn(batch, line, id) end
    end
  end
  return ids, #ids
end

-- choose makes a batch of lost and due messages.
local function choose(budget, lost, due)
  local batch = {
    ids = {}, details = {}, entries = {}, buried = {}, bytes = 0, stop = nil,
    due = {}, due_count = 0, -- ids, and how many of them the batch has
    owners = {}, checked = {}, turns = {}, waiting = {}, places = {}, scores = {}, lost = 0, -- see lib_claim_order.lua
    halts = budget.halts, has_turns = has_turns,
  }
  consider(batch, lost, true, budget.limit)
  batch.lost = #batch.waiting
  if batch.stop then return batch end
  -- Those of lost leases are in unack already, and those to bury leave it.
  local room = math.max(0, budget.capacity + #batch.buried / 2)
  local max_count = math.min(budget.limit, #batch.ids + room)
  batch.due, batch.due_count = consider(batch, due, false, max_count)
  return batch
end

-- take leases a batch. It adds before it removes: a write that is refused halfway must not leave
-- a message in no set.
local function take(budget, batch, source, last_ms)
  local ids, buried = batch.ids, batch.buried
  batch.bodies, batch.metadata = texts_of(ids, has_metadata)
  batch.details = table.concat(batch.details, ' ')
  if budget.limits then spend(budget.limits, settings, group, #ids) end
  write_record(claims, consumer, ARGV[3], now_ms, cjson.encode({ deadline, batch.details, ids, buried }), last_ms)
  if #batch.entries > 0 then redis.call('HSET', attempts, unpack(batch.entries)) end
  if #batch.turns > 0 then redis.call('HSET', turns, unpack(batch.turns)) end
  if #batch.waiting > 0 then line_up(batch) end
  add_leases(unack, ids, deadline)
  for i = 1, #buried, 2 do
    local line = not batch.halts and line_of(buried[i])
    bury(dead, reasons, keys, buried[i], now, buried[i + 1])
    if line then pass_turns(turns, blocked, queue, { buried[i] }, { line }) end
    redis.call('ZREM', unack, buried[i])
  end
  if #buried > 0 then release_capacity(at_limit, unack, channel, group) end
  remove_due(batch, source)
end

-- wait_us is how long no other message can be due; -2 if the next is only for a free worker.
local function wait_us(budget, batch)
  local ends, limits = budget.pause_ends, budget.limits
  if ends then return ends == 0 and -1 or ends * 1000 - now end
  if batch.stop == 'worker' then return -2 end
  -- Where a turn was to be healed there may be more: the group claims again at once.
  local first = (batch.stop or batch.healed) and 0 or earliest(scheduled, queue, unack)
  local wait = first and math.max(0, first * 1000 - now) or -1
  if wait ~= 0 or not limits then return wait end
  wait = wait_for_limits(limits, unack, at_limit, group, now)
  return wait == 0 and budget.scarce and #batch.ids >= free_workers and -2 or wait
end

-- report tells the group's other consumers, which may wait for the same message, that they need
-- not look, if nothing more is due. A consumer that claims all the time does not say so each time.
local function report(budget, batch, last_ms)
  local BUSY_MS = 2
  local wait = wait_us(budget, batch)
  if not last_ms or math.floor(last_ms / 1000) ~= math.floor(now_ms / 1000) then
    note_alive(consumers, consumer, now_ms, alive_ms, about)
  end
  local busy = last_ms and tonumber(now_ms) - last_ms < BUSY_MS
  if wait ~= 0 and wait ~= -2 and not busy and redis.call('HLEN', claims) > 1 then
    local count = #batch.ids + #batch.buried / 2
    redis.pcall(NOTIFY, channel, string.format('=%.0f %d %d ', wait, count, #group) .. group .. consumer)
  end
  return reply(wait, batch)
end

local budget = plan()
begin_writes(unack)
-- Messages whose lease ran out come first: they have waited longest.
local lost = due_of(unack, now_ms, budget.reach)
if not only_leased(ids_of(lost), audience) then return ask() end
local due, source = find_due(budget, lost)
if not due then return ask() end
local batch = choose(budget, lost, due)
take(budget, batch, source, last_ms)
batch.healed = has_turns and heal(budget.halts)
return report(budget, batch, last_ms)
