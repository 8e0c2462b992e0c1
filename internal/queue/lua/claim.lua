-- claim.lua: lease due messages of one group to one consumer.
--
-- A new message waits in scheduled. The first claim that finds it due moves it to the queues of all
-- groups (lib_fan_out.lua) or, if there is only one group, leases it at once. To lease a message, the
-- claim moves it to unack, with the end of the lease as its score, and gives it a receipt, which
-- settlements have to name.
-- A claim has these steps. A repeated request gets its first answer again (still_held and fitting, in lib_claim_again.lua).
-- The group's pause and limits decide how many messages it may take (plan; rules_of and allowed, in lib_claim.lua). It takes
-- messages with expired leases first, then due ones (find_due; audience_of, fan_out and only_leased, in lib_fan_out.lua). It
-- leases each, buries it after too many deliveries, or lets it wait in line while its ordering key is busy (consider, take;
-- is_busy and heal, in lib_claim_order.lua). It adds each message to its new set before it removes it from the old one. The
-- reply says when to claim again (report, reply). If no message is due, lib_idle.lua answers before this file.
--
-- KEYS     scheduled, messages, groups, refs, keys, queue, unack, attempts, claims, dead, reasons,
--          nack_metadata, settings, consumers, at_limit, partitions, expiry, turns, blocked,
--          imported; for each group: queue
-- ARGV[1]   group
-- ARGV[2]   consumer
-- ARGV[3]   request  integer; a repeated request gets the same messages again, as far as they fit
-- ARGV[4]   limit    integer, 1..1000
-- ARGV[5]   free     integer, 0..limit: the consumer's free workers. Each message that was claimed
--                    before (except if it was only released unseen, once) needs one; the claim
--                    stops at the first message without one
-- ARGV[6]   lease    ms
-- ARGV[7]   max deliveries, 0 for no limit
-- ARGV[8]   bytes    of text to return at most, unless the first message has more
-- ARGV[9]   channel  where subscribers listen for notifications
-- ARGV[10]  alive    for how many ms the consumer counts as alive
-- ARGV[11]  about    description of the consumer for operators; '' to record nothing
-- ARGV[12]  asof     ms by Redis's clock: when the groups that follow were all other groups; 0 if
--                    none are named
-- ARGV[13..]  other groups, in the order of their queues. Only a claim that finds due messages in
--             scheduled needs them; see lib_fan_out.lua
-- Returns  { 'groups', now in ms, name, ... } if the caller has to name these groups, or to
--            register its own group, which is missing; no message was leased
--          { 'claimed', now in ms, lease deadline in ms, wait: µs until the next message is due, -1
--            if none will be, -2 if the next one needs a free worker, or -2 less the number of a
--            later request if one is recorded, and nothing else,
--            'due receipt due receipt ...' with due in ms, { id, ... }, { body, ... },
--            { index, metadata, ... } of messages with metadata of their own,
--            { id, reason, ... } of messages that were buried,
--            number of partitions if more than one, 1 if groups may end soon else 0 }

local group, consumer, request = ARGV[1], ARGV[2], tonumber(ARGV[3])
local limit, free_workers, lease_ms = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local max_deliveries, max_bytes, channel = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local alive_ms, about, asof = tonumber(ARGV[10]), ARGV[11], tonumber(ARGV[12])
local now, now_ms = now_us()
local deadline = int(math.ceil(now / 1000) + lease_ms)

-- These reads check the types of the keys that lib_idle.lua has not checked, before any write.
local group_count = redis.call('SCARD', groups)
local partition_count = tonumber(redis.call('GET', partitions)) or 0
local expiring = #expiring_soon(expiry, tonumber(now_ms)) > 0 and 1 or 0
local has_metadata = redis.call('HLEN', nack_metadata) > 0
local has_attempts = redis.call('HLEN', attempts) > 0
local has_turns = redis.call('HLEN', turns) > 0 or redis.call('ZCARD', blocked) > 0
if has_turns then redis.call('ZRANGEBYLEX', blocked, '+', '-') end -- see order_keys_of

-- ask returns the reply that makes the caller name the groups, or register its own.
local function ask() return prepend('groups', prepend(now_ms, redis.call('SMEMBERS', groups))) end

-- reply returns the answer with a batch, or without messages if batch is nil. Due times and
-- receipts are one text, since each value of a reply is slow.
local function reply(wait, batch)
  batch = batch or { details = '', ids = {}, bodies = {}, metadata = {}, buried = {} }
  return {
    'claimed', tonumber(now_ms), tonumber(batch.deadline or deadline), wait, batch.details, batch.ids, batch.bodies,
    batch.metadata, batch.buried, partition_count, expiring,
  }
end

-- audience returns the groups that get the messages which become due. It computes them only if a claim needs
-- them, because that takes time for each group.
local made_audience
local function audience()
  if made_audience then return made_audience end
  local queues = {}
  for i = EACH_FROM, #KEYS do queues[ARGV[i - EACH_FROM + 13]] = KEYS[i] end
  local members = group_count > 1 and redis.call('SMEMBERS', groups) or {}
  -- Imported messages may have been due before they came, so after an import, all groups must be named.
  local known_at = redis.call('ZCARD', imported) == 0 and asof or 0
  made_audience = audience_of(members, group, queues, known_at, tonumber(now_ms))
  return made_audience
end

if unknown(groups, group) then return ask() end
local number, last_ms, result = recorded(claims, consumer)
-- An older request gets no messages. Either it is a late copy, whose caller already has the answer; or the
-- caller's memory was set back, and it continues from the number in this reply.
if number > request then return reply(-2 - number) end
if number == request then
  local held = still_held(result)
  local batch, back = fitting(held, limit, max_bytes, now_ms, has_metadata)
  batch.bodies, batch.metadata = texts_of(batch.ids, has_metadata)
  begin_writes(unack)
  if not only_leased(held.ids, audience) then return ask() end
  write_record(claims, consumer, ARGV[3], now_ms, cjson.encode({ held.deadline, batch.details, batch.ids, held.recorded }), last_ms)
  release_unseen(back, group, channel, now)
  return reply(0, batch)
end

-- plan returns the budget of the claim:
--   pause_ends, limits  the group's pause and limits, and scarce, whether they leave room for few messages
--   limit               how many messages the claim may lease, and capacity, how many it may add to unack
--   reach               how many it reads; beyond is set if these are more than the limit, because the first
--                       message must be buried or waits for its ordering key
--   halts               whether dead messages halt ordering keys
local function plan()
  local CLAIMS_AHEAD = 4 -- consumers hold messages ahead only while the limits allow this many claims
  local MAX_BURIED = 100 -- messages that a claim may bury beyond its limit
  local MAX_IN_LINE = 500 -- messages that a claim may let wait in line beyond its limit
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

-- find_due returns due messages, ordered by due time, and the set that they are in. The group's queue has retries
-- and, if there are several groups, new messages. If there is only one group, new messages are in scheduled; the set
-- is nil if the messages come from both. It returns nothing if the caller has to name the groups.
local function find_due(budget, lost)
  local MAX_ENTRIES = 4000 -- that one call adds to the queues of all groups together
  local after = #lost / 2
  local count = budget.beyond and budget.reach - after or math.min(budget.limit - after, math.max(0, budget.capacity))
  local some = math.min(count, math.max(1, math.floor(MAX_ENTRIES / group_count)))
  local due = due_of(scheduled, now_ms, some)
  if #due == 0 then return due_of(queue, now_ms, count), queue end
  if group_count == 1 then
    local till = #due < 2 * count and now_ms or due[#due] -- later messages of the queue do not fit into this claim
    local queued = due_of(queue, till, count)
    if #queued == 0 then return due, scheduled end
    return merge(queued, due, count)
  end
  local first, retry = tonumber(due[2]), head(queue)
  local moved = fan_out(audience(), due, queue, scheduled, refs)
  if moved > 0 then
    -- If others may be left in scheduled, messages of the queue that are due later wait for them.
    local till = 2 * moved == #due and moved < some and now_ms or due[2 * moved]
    return due_of(queue, till, count), queue
  end
  -- The caller does not name all groups that need the new messages. It need not learn them yet if the queue
  -- of its own group has messages that are due before the new ones.
  if asof > 0 and (after > 0 or retry and retry <= first) then
    local before = due_of(queue, due[2], count)
    if still_scheduled(ids_of(before), audience) then return before, queue end
  end
end

-- consider decides for each message of a list whether to lease it, to bury it, or to let it wait in line,
-- until the batch is full. It reads no bodies, because a body that does not fit must not be copied in
-- Redis's memory. It returns the ids of the list, and how many of them are in the batch.
local function consider(batch, list, lost, max_count)
  local RELEASED_ONCE = '2/0/0' -- entry of a message that was released unseen once
  local call = redis.call -- looked up once: the loop is long
  if #list == 0 then return list, 0 end
  local ids, n, details, written, buried = ids_of(list), #batch.ids, batch.details, batch.entries, batch.buried
  local entries = has_attempts and call('HMGET', attempts, unpack(ids)) or {}
  local order_keys
  for i, id in ipairs(ids) do
    if i % ORDER_KEYS_AT_ONCE == 1 then order_keys = next_order_keys(batch, ids, i) end
    local entry, order_key, reason = entries[i] or lost and '1', order_keys[i], nil
    if entry then entry, reason = next_entry(entry, lost, max_deliveries) end
    local waits = order_key and not reason and is_busy(batch, order_key, id)
    local length = waits and 0 or call('HSTRLEN', messages, id)
    if length == 0 and not (waits or reason) and call('HEXISTS', messages, id) == 0 then
      reason = 'message body is missing'
    end
    if has_metadata then length = length + call('HSTRLEN', nack_metadata, id) end
    local again = entry and entry ~= RELEASED_ONCE
    if reason then
      buried[#buried + 1], buried[#buried + 2] = id, reason
    elseif waits then
      send_in_line(batch, order_key, id, list[2 * i])
      if lost and not entries[i] then -- else its next claim would repeat the receipt of the expired lease
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
      if order_key then give_turn(batch, order_key, id) end
    end
  end
  return ids, #ids
end

-- choose makes a batch of messages with expired leases (lost) and due messages.
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
  -- Messages with expired leases are in unack already, and messages to bury leave it.
  local room = math.max(0, budget.capacity + #batch.buried / 2)
  local max_count = math.min(budget.limit, #batch.ids + room)
  batch.due, batch.due_count = consider(batch, due, false, max_count)
  return batch
end

-- take leases a batch. It adds before it removes: if a write is refused halfway, each message must
-- still be in a set.
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
    local order_key = not batch.halts and order_key_of(buried[i])
    bury(dead, reasons, keys, buried[i], now, buried[i + 1])
    if order_key then pass_turns(turns, blocked, queue, { buried[i] }, { order_key }) end
    redis.call('ZREM', unack, buried[i])
  end
  if #buried > 0 then release_capacity(at_limit, unack, channel, group) end
  remove_due(batch, source)
end

-- wait_us returns how long to wait for the next message, -1 if none is scheduled, or -2 if the next one needs a free worker.
local function wait_us(budget, batch)
  local ends, limits = budget.pause_ends, budget.limits
  if ends then return ends == 0 and -1 or ends * 1000 - now end
  if batch.stop == 'worker' then return -2 end
  -- If a turn was repaired, others may be broken, so the group claims again at once.
  local first = (batch.stop or batch.healed) and 0 or earliest(scheduled, queue, unack)
  local wait = first and math.max(0, first * 1000 - now) or -1
  if wait ~= 0 or not limits then return wait end
  wait = wait_for_limits(limits, unack, at_limit, group, now)
  return wait == 0 and budget.scarce and #batch.ids >= free_workers and -2 or wait
end

-- report returns the reply. If nothing more is due, it also notifies the group's other consumers,
-- so that they do not claim in vain. A consumer that claims all the time does not notify each time.
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
-- Messages with expired leases come first, because they have waited longest.
local lost = due_of(unack, now_ms, budget.reach)
if not only_leased(ids_of(lost), audience) then return ask() end
local due, source = find_due(budget, lost)
if not due then return ask() end
local batch = choose(budget, lost, due)
take(budget, batch, source, last_ms)
batch.healed = has_turns and heal(budget.halts)
return report(budget, batch, last_ms)
