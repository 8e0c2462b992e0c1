-- claim.lua: lease due messages of one group to one consumer.
--
-- KEYS     scheduled, messages, groups, refs, keys, queue, unack, attempts, claims, dead, reasons,
--          changed, control, consumers, full, partitions, expiry, turns, lanes; for each group: queue
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
--            'due token due token ...' with due in ms, { id, ... }, { body, ... },
--            { index, metadata, ... } of those with their own,
--            { id, reason, ... } of those that became dead letters,
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
local has_metadata = redis.call('HLEN', changed) > 0
local has_attempts = redis.call('HLEN', attempts) > 0
local has_turns = redis.call('HLEN', turns) > 0 or redis.call('ZCARD', lanes) > 0
if has_turns then redis.call('ZRANGEBYLEX', lanes, '+', '-') end -- see lines_of

-- ask makes the caller name the groups, or register its own.
local function ask() return answer('groups', answer(now_ms, redis.call('SMEMBERS', groups))) end

-- reply gives a batch, nil for nothing. Its details, due times and tokens, are one text, since
-- each value of a reply is slow.
local function reply(wait, batch)
  batch = batch or { details = '', ids = {}, bodies = {}, buried = {} }
  local metadata = {}
  for i = 1, has_metadata and #batch.ids or 0 do
    if batch.metadata[i] then
      metadata[#metadata + 1] = i
      metadata[#metadata + 1] = batch.metadata[i]
    end
  end
  return {
    'claimed', tonumber(now_ms), tonumber(batch.deadline or deadline), wait, batch.details, batch.ids, batch.bodies, metadata,
    batch.buried, partition_count, expiring,
  }
end

-- texts_of reads the bodies of messages and this group's own metadata for them.
local function texts_of(ids)
  if #ids == 0 then return {}, {} end
  return redis.call('HMGET', messages, unpack(ids)), has_metadata and redis.call('HMGET', changed, unpack(ids)) or {}
end

-- audience is whom messages that fall due are for. It is made when a claim needs it, since
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

-- still_scheduled are those of some leased messages that also wait in scheduled, where a torn
-- file may leave them, with their due times; nil if the caller does not know whom they are for.
local function still_scheduled(ids)
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

-- only_leased makes sure that leased messages do not also wait somewhere: a torn file may
-- leave them where they were before the claim that leased them. Those still in scheduled go
-- to all groups.
local function only_leased(ids, waiting)
  if #ids == 0 then return end
  if #waiting > 0 then fan_out(audience(), waiting, #waiting / 2, queue, scheduled, refs) end
  redis.call('ZREM', queue, unpack(ids))
end

if unknown(groups, group) then return ask() end
local number, last_ms, result = recorded(claims, consumer)
-- An older request gets no messages. Either it is a late copy, whose caller has had the answer; or the memory
-- of its caller was set back, and the caller goes on from the number in this reply.
if number > request then return reply(-2 - number) end

-- A request that was sent again gets what it got and still holds, as far as that fits the limits of this copy, and what it
-- buried. Its leases end when they would have ended: what a consumer cannot fetch within one is for others. The rest goes
-- back unseen; once the leases are over, all of it does, and a message that exceeds the limit by itself goes behind the others
-- that are due. The record keeps what is left, so that no copy gets more.
-- It holds what nobody has claimed or extended since. The token alone does not
-- prove that: a torn file may bring back the record of a claim that was undone, and another
-- consumer may have those messages by now. (As a function, this would cost each claim time.)
if number == request then
  local old_deadline, joined, ids, buried = unpack(cjson.decode(result))
  local dues, tokens = {}, {}
  for due, token in string.gmatch(joined, '(%S+) (%S+)') do
    dues[#dues + 1], tokens[#tokens + 1] = due, token
  end
  local holds, _, leases = current(unack, attempts, ids, tokens)
  local bodies, metadata = texts_of(ids)
  local batch = { deadline = old_deadline, ids = {}, bodies = {}, metadata = {}, buried = {} }
  local over, stopped, bytes, n = tonumber(old_deadline) <= tonumber(now_ms), false, 0, 0
  local details, held, back, scores, entries = {}, {}, {}, {}, {}
  for i, id in ipairs(ids) do
    if holds[i] and tonumber(leases[i]) == tonumber(old_deadline) and bodies[i] then
      local length = #bodies[i] + #(metadata[i] or '')
      held[#held + 1] = id
      stopped = stopped or over or n >= limit or n > 0 and bytes + length > max_bytes
      if stopped then
        back[#back + 1] = id
        scores[#scores + 1], scores[#scores + 2] = over and length > max_bytes and now_ms or dues[i], id
        entries[#entries + 1], entries[#entries + 2] = id, unseen(tokens[i])
      else
        n, bytes = n + 1, bytes + length
        batch.ids[n], batch.bodies[n], batch.metadata[n] = id, bodies[i], metadata[i]
        details[n] = dues[i] .. ' ' .. tokens[i]
      end
    end
  end
  for i = 1, #buried, 2 do
    if redis.call('ZSCORE', dead, buried[i]) then
      table.insert(batch.buried, buried[i])
      table.insert(batch.buried, buried[i + 1])
    end
  end
  batch.details = table.concat(details, ' ')
  local waiting = still_scheduled(held)
  if not waiting then return ask() end
  begin_writes(unack)
  write_record(claims, consumer, ARGV[3], now_ms, cjson.encode({ old_deadline, batch.details, batch.ids, buried }), last_ms)
  only_leased(held, waiting)
  if #back > 0 then
    redis.call('HSET', attempts, unpack(entries))
    redis.call('ZADD', queue, unpack(scores))
    redis.call('ZREM', unack, unpack(back))
    redis.call('HDEL', full, group)
    wake(channel, now, 0, group)
  end
  return reply(0, batch)
end

-- plan returns what holds the group back: a pause, its limits, and whether they leave little
-- (scarce); how many messages the claim may lease (limit), how many that are not in unack yet
-- (capacity), and how many it looks at (reach): more than the limit (beyond) if the first must be
-- buried, or waits for its ordering key.
local function plan()
  local CLAIMS_AHEAD = 4 -- messages are held ahead while the limits have room for so many claims
  local MAX_BURIED = 100 -- messages that a claim may bury beyond its limit
  local MAX_IN_LINE = 500 -- messages that a claim may send in line beyond its limit
  local pause_ends, limits = rules_of(control, group, now)
  local capacity, tokens = allowed(limits, unack, now)
  local scarce, max_count = math.min(capacity, tokens) < CLAIMS_AHEAD * limit, limit
  if scarce then max_count = math.min(max_count, tokens, free_workers) end
  if pause_ends then max_count = 0 end
  local burying = max_count > 0 and max_deliveries > 0 and has_attempts
    and (begins_exhausted(unack, attempts, now_ms, max_deliveries)
      or begins_exhausted(queue, attempts, now_ms, max_deliveries))
  local lining_up = max_count > 0 and has_turns and (begins_busy(turns, scheduled, now_ms) or begins_busy(turns, queue, now_ms))
  local beyond = lining_up and MAX_IN_LINE or burying and MAX_BURIED
  return {
    pause_ends = pause_ends, limits = limits, scarce = scarce, limit = max_count, capacity = capacity,
    beyond = beyond, reach = math.max(max_count, beyond or 0), halts = has_turns and halts_keys(control, group),
  }
end

-- find_lost returns messages whose lease ran out; nil if the caller has to name the groups.
local function find_lost(budget)
  local lost = due_of(unack, now_ms, budget.reach)
  local ids = ids_of(lost)
  local waiting = still_scheduled(ids)
  if not waiting then return end
  only_leased(ids, waiting)
  return lost
end

-- merge returns the first of the due messages that are in the queue or in scheduled. A torn file may leave some in both.
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
  local known = covered(audience(), due)
  if known > 0 then
    fan_out(audience(), due, known, queue, scheduled, refs)
    return due_of(queue, now_ms, count), queue
  end
  -- A caller with old groups is not asked for the new ones as long as its own has something that
  -- comes before what is for all.
  if asof > 0 and (after > 0 or retry and retry <= first) then
    local before = due_of(queue, due[2], count)
    if still_scheduled(ids_of(before)) then return before, queue end
  end
end

local LINES_AT_ONCE = 100

-- lines_in returns the lines of the next messages of a list that have an ordering key, by their place in the list, and
-- looks up who has their turns.
local function lines_in(batch, ids, from)
  local lines, unknown = {}, {}
  for i = from, math.min(#ids, from + LINES_AT_ONCE - 1) do
    local line = #ids[i] > 27 and line_of(ids[i])
    if line then
      lines[i] = line
      if batch.owners[line] == nil then
        batch.owners[line] = false
        unknown[#unknown + 1] = line
      end
    end
  end
  if #unknown == 0 or not has_turns then return lines end
  local holders, held = {}, {}
  for i, owner in ipairs(redis.call('HMGET', turns, unpack(unknown))) do
    local line = unknown[i]
    batch.owners[line] = owner
    if owner then holders[#holders + 1], held[#held + 1] = owner, line end
  end
  if #holders == 0 then return lines end
  for i, leased in ipairs(redis.call('ZMSCORE', unack, unpack(holders))) do
    if leased then batch.checked[held[i]] = true end
  end
  return lines
end

-- is_busy tells whether another message has the turn of an ordering key.
local function is_busy(batch, line, id)
  local owner = batch.owners[line]
  if owner and owner ~= id and not batch.checked[line] then
    batch.checked[line] = true
    if not has_turn(owner, queue, unack, dead, batch.halts) then
      pass_turns(turns, lanes, queue, { owner }, { line })
      owner = redis.call('HGET', turns, line)
      batch.owners[line] = owner
    end
  end
  return owner and owner ~= id
end

-- consider adds messages of a list to a batch, until something stops it: those to lease, those to bury, and
-- those to send in line. It reads no bodies: one beyond the limit of bytes must not be copied in Redis's
-- memory. It returns the ids of the list, and how many of them are in the batch.
local function consider(batch, list, lost, max_count)
  local RELEASED_ONCE = '^2/0/0/?%d*$' -- entry of a message that was released unseen once
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
    if has_metadata then length = length + call('HSTRLEN', changed, id) end
    local again = entry and not string.match(entry, RELEASED_ONCE)
    if #id > 27 and has_ttl(id) then entry = with_due(entry, list[2 * i]) end
    if reason then
      buried[#buried + 1], buried[#buried + 2] = id, reason
    elseif waits then
      local m = #batch.waiting + 1
      batch.waiting[m], batch.places[2 * m - 1], batch.places[2 * m] = id, 0, place_of(line, list[2 * i], id)
      batch.scores[2 * m - 1], batch.scores[2 * m] = int(list[2 * i] + IN_LINE), id
      if lost and not entries[i] then -- else its next claim would have the token of the lost one
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
      if line then
        batch.checked[line] = true -- it is in unack once take has run: a torn file may have left it in scheduled until then
        if batch.owners[line] ~= id then
          batch.owners[line] = id
          batch.turns[#batch.turns + 1], batch.turns[#batch.turns + 2] = line, id
        end
      end
    end
  end
  return ids, #ids
end

-- choose makes a batch of lost and due messages.
local function choose(budget, lost, due)
  local batch = {
    ids = {}, details = {}, entries = {}, bodies = {}, metadata = {}, buried = {}, bytes = 0, stop = nil,
    due = {}, due_count = 0, -- ids, and how many of them the batch has
    owners = {}, checked = {}, turns = {}, halts = budget.halts, -- of lines: who has the turn, and who gets it
    waiting = {}, places = {}, scores = {}, lost = 0, -- ids to send in line; how many of them lost their leases
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

-- line_up sends messages whose ordering keys are busy in line.
local function line_up(batch)
  redis.call('ZADD', lanes, unpack(batch.places))
  redis.call('ZADD', queue, unpack(batch.scores))
  if batch.lost > 0 then redis.call('ZREM', unack, unpack(batch.waiting, 1, batch.lost)) end
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

-- take leases a batch. It adds before it removes: a write that is refused halfway must not leave
-- a message in no set.
local function take(budget, batch, source, last_ms)
  local ids, buried = batch.ids, batch.buried
  batch.bodies, batch.metadata = texts_of(ids)
  batch.details = table.concat(batch.details, ' ')
  if budget.limits then spend(budget.limits, control, group, #ids) end
  write_record(claims, consumer, ARGV[3], now_ms, cjson.encode({ deadline, batch.details, ids, buried }), last_ms)
  if #batch.entries > 0 then redis.call('HSET', attempts, unpack(batch.entries)) end
  if #batch.turns > 0 then redis.call('HSET', turns, unpack(batch.turns)) end
  if #batch.waiting > 0 then line_up(batch) end
  add_leases(unack, ids, deadline)
  for i = 1, #buried, 2 do
    local line = not batch.halts and line_of(buried[i])
    bury(dead, reasons, keys, buried[i], now, buried[i + 1])
    if line then pass_turns(turns, lanes, queue, { buried[i] }, { line }) end
    redis.call('ZREM', unack, buried[i])
  end
  if #buried > 0 then release_capacity(full, unack, channel, group) end
  remove_due(batch, source)
end

-- heal looks at a few turns and lines of the group. It passes on a turn whose message is nowhere, gives a turn that nobody
-- has to the first in line, and tells whether it found any. A torn file may leave such turns; so may an operator who no
-- longer lets dead letters halt their keys.
local function heal(halts)
  local some, healed = redis.pcall('HRANDFIELD', turns, 3, 'WITHVALUES'), false
  for i = 1, #some, 2 do
    if not has_turn(some[i + 1], queue, unack, dead, halts) then
      pass_turns(turns, lanes, queue, { some[i + 1] }, { some[i] })
      healed = true
    end
  end
  for _, place in ipairs(redis.pcall('ZRANDMEMBER', lanes, 3)) do
    local line = line_in(place)
    if redis.call('HEXISTS', turns, line) == 0 then
      pass_turns(turns, lanes, queue, { false }, { line })
      healed = true
    end
  end
  return healed
end

-- wait_us is how long no other message can be due; -2 if the next is only for a free worker.
local function wait_us(budget, batch)
  local ends, limits = budget.pause_ends, budget.limits
  if ends then return ends == 0 and -1 or ends * 1000 - now end
  if batch.stop == 'worker' then return -2 end
  -- Where a turn was to be healed there may be more: the group looks again at once.
  local first = (batch.stop or batch.healed) and 0 or earliest(scheduled, queue, unack)
  local wait = first and math.max(0, first * 1000 - now) or -1
  if wait ~= 0 or not limits then return wait end
  wait = wait_for_limits(limits, unack, full, group, now)
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
local lost = find_lost(budget)
if not lost then return ask() end
local due, source = find_due(budget, lost)
if not due then return ask() end
local batch = choose(budget, lost, due)
take(budget, batch, source, last_ms)
batch.healed = has_turns and heal(budget.halts)
return report(budget, batch, last_ms)
