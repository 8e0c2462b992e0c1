-- claim.lua: lease due messages of one group to one consumer.
--
-- KEYS[1]   scheduled  zset  id -> due, ms: not yet given to the groups
-- KEYS[2]   messages   hash  id -> encoded message
-- KEYS[3]   groups     set   consumer groups
-- KEYS[4]   refs       hash  id -> names of the groups still to finish
-- KEYS[5]   keys       hash  message key -> id
-- KEYS[6]   queue      zset  id -> due, ms: waiting for the group
-- KEYS[7]   unack      zset  id -> lease deadline, ms
-- KEYS[8]   attempts   hash  id -> fence/seen/unsure
-- KEYS[9]   claims     hash  consumer -> record of its last claim
-- KEYS[10]  dead       zset  id -> when buried, ms
-- KEYS[11]  reasons    hash  id -> why buried
-- KEYS[12]  changed    hash  id -> metadata as a middleware of this group left them
-- KEYS[13]  control    hash  what groups are told: see lib_groups.lua
-- KEYS[14]  consumers  hash  consumer -> until when it counts as alive, and more about it
-- KEYS[15]  full       hash  group that waits for room in unack -> how many are too many
-- KEYS[16]  partitions  string  in partition 0: how many there are, if more than one
-- KEYS[17]  expiry      zset    group -> when to look whether it has expired, ms
-- KEYS[18..]  for each of the other groups: queue
-- ARGV[1]   group
-- ARGV[2]   consumer
-- ARGV[3]   request  integer; the same request again gets the same messages
-- ARGV[4]   limit    integer, 1..1000
-- ARGV[5]   free     integer, 0..limit: the consumer's free workers. Messages that were
--                    claimed before are only for them, unless they were given back
--                    unseen just once; such a message ends a claim when none is left
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
--            not one of them and has to register; no message was touched
--          { 'claimed', lease deadline in ms, µs until the next is due or -1 if none
--            will be or -2 if the next is only for a free worker,
--            'due token due token ...' with due in ms, { id, ... }, { body, ... },
--            { index, metadata, ... } of those with their own,
--            { id, reason, ... } of those that became dead letters,
--            how many partitions there are if more than one, 1 if groups may end soon else 0 }

local scheduled, messages, groups, refs, keys = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local queue, unack, attempts, claims = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local dead, reasons, changed = KEYS[10], KEYS[11], KEYS[12]
local control, consumers, full, partitions, expiry = KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local group, consumer, request = ARGV[1], ARGV[2], tonumber(ARGV[3])
local limit, free_workers = tonumber(ARGV[4]), tonumber(ARGV[5])
local lease, max, bytes, channel = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local alive, about = tonumber(ARGV[10]), ARGV[11]
local asof = tonumber(ARGV[12])
local call = redis.call -- looked up once: the loops are long
local BUSY_MS = 2
local AHEAD_AGAIN = '2/0/0' -- entry of a message that was given back unseen once
local MOST_SPENT = 100 -- messages that a claim may bury beyond its limit
local MOST_ENTRIES = 4000 -- that one call adds to the queues of all groups together, at most
local CLAIMS_AHEAD = 4 -- messages are held ahead while the limits have room for so many claims

local now, now_ms = now_us()
local deadline = int(math.ceil(now / 1000) + lease)

local group_count = call('SCARD', groups)
local function ask() return answer('groups', answer(now_ms, call('SMEMBERS', groups))) end
if unknown(groups, group) then return ask() end

local partition_count = tonumber(call('GET', partitions)) or 0
local ending = #near(expiry, tonumber(now_ms)) > 0 and 1 or 0

-- give leases a message. It counts what it puts into tables, since the # of a table is
-- slow. The details are joined, since each value of a reply is slow too.
local given, ids_given, bodies_given, metadata_given = 0, {}, {}, {}
local details, entries_given, burials = {}, {}, {}
local function give(id, due, token, body, metadata)
  local i = 2 * given
  details[i + 1], details[i + 2] = due, token
  given = given + 1
  ids_given[given], bodies_given[given] = id, body
  if metadata then
    metadata_given[#metadata_given + 1] = given
    metadata_given[#metadata_given + 1] = metadata
  end
end

-- lease_given adds the last first: Redis searches a small set from its start.
local function lease_given()
  if given == 0 then return end
  local leases, n = {}, 0
  for i = given, 1, -1 do
    leases[n + 1], leases[n + 2] = deadline, ids_given[i]
    n = n + 2
  end
  call('ZADD', unack, unpack(leases))
end

local function reply(wait, joined)
  return {
    'claimed', tonumber(deadline), wait, joined, ids_given, bodies_given, metadata_given, burials, partition_count, ending,
  }
end

-- texts_of reads the bodies of messages and this group's own metadata for them.
local own = call('HLEN', changed) > 0
local function texts_of(ids)
  if #ids == 0 then return {}, {} end
  return call('HMGET', messages, unpack(ids)), own and call('HMGET', changed, unpack(ids)) or {}
end

-- audience is whom messages that fall due are for. It is made when a claim needs it, since
-- that takes time for each group.
local made_audience
local function audience()
  if made_audience then return made_audience end
  local queues = {}
  for i = 18, #KEYS do queues[ARGV[i - 5]] = KEYS[i] end
  local members = group_count > 1 and call('SMEMBERS', groups) or {}
  made_audience = audience_of(members, group, queues, asof, tonumber(now_ms))
  return made_audience
end

-- still_scheduled are those of some leased messages that also wait in scheduled, where a torn
-- file may leave them, with their due times; nil if the caller does not know whom they are for.
local function still_scheduled(ids)
  local waiting, latest = {}, 0
  for i, due in ipairs(#ids > 0 and call('ZMSCORE', scheduled, unpack(ids)) or {}) do
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
  call('ZREM', queue, unpack(ids))
end

-- note writes the record of this claim; last_ms is when the previous one was written.
local function note(joined, ids, buried, last_ms)
  write_record(claims, consumer, ARGV[3], now_ms, cjson.encode({ deadline, joined, ids, buried }), last_ms)
end

-- replay answers a request that was sent again: with what it got and still holds, whose
-- leases start anew, and with what it buried. It holds what nobody has claimed or extended
-- since. The token alone does not prove that: a torn file may bring back the record of a
-- claim that was undone, and another consumer may have those messages by now.
local function replay(result, last_ms)
  local until_then, joined, ids, buried = unpack(cjson.decode(result))
  local dues, tokens = {}, {}
  for due, token in string.gmatch(joined, '(%S+) (%S+)') do
    dues[#dues + 1], tokens[#tokens + 1] = due, token
  end
  local holds, _, scores = current(unack, attempts, ids, tokens)
  local bodies, metadata = texts_of(ids)
  for i, id in ipairs(ids) do
    if holds[i] and tonumber(scores[i]) == tonumber(until_then) and bodies[i] then
      give(id, dues[i], tokens[i], bodies[i], metadata[i] or nil)
    end
  end
  for i = 1, #buried, 2 do
    if call('ZSCORE', dead, buried[i]) then
      burials[#burials + 1] = buried[i]
      burials[#burials + 1] = buried[i + 1]
    end
  end
  local waiting = still_scheduled(ids_given)
  if not waiting then return ask() end
  begin_writes(unack)
  note(joined, ids, buried, last_ms)
  lease_given()
  only_leased(ids_given, waiting)
  return reply(0, table.concat(details, ' '))
end

local last, last_ms = call('HGET', claims, consumer), nil
if last then
  local number, result
  number, last_ms, result = parse_record(last)
  if number == request then return replay(result, last_ms) end
  -- This is a late copy of an older request, whose caller has long had the answer.
  if number > request then return reply(-1, '') end
end

expect_hashes(messages, refs, keys, reasons, full)
local pause_ends, limits = rules_of(control, group, now)
local room, tokens = allowed(limits, unack, now)
local scarce = math.min(room, tokens) < CLAIMS_AHEAD * limit
if scarce then limit = math.min(limit, tokens, free_workers) end
if pause_ends then limit = 0 end
expect_zsets(dead)
local claimed_before = call('HLEN', attempts) > 0
begin_writes(unack)

-- Messages whose lease ran out come first: they have waited longest. Due messages
-- follow, in the order of their due times, from the group's queue: retries and, with
-- several groups, new messages. With only one group and no due retry, they come
-- straight from scheduled.
local look_further = limit > 0 and max > 0 and claimed_before
  and (begins_spent(unack, attempts, now_ms, max) or begins_spent(queue, attempts, now_ms, max))
local reach = look_further and math.max(limit, MOST_SPENT) or limit
local ended = due_of(unack, now_ms, reach)
local late, lost_ids = #ended / 2, ids_of(ended)
local waiting = still_scheduled(lost_ids)
if not waiting then return ask() end
only_leased(lost_ids, waiting)
limit = math.min(limit, late + math.max(0, room)) -- those of lost leases are in unack already
if not look_further then reach = limit end
local source, fresh = queue, nil
local due = due_of(scheduled, now_ms, math.min(reach - late, math.max(1, math.floor(MOST_ENTRIES / group_count))))
local retry = #due > 0 and head(queue)
if #due > 0 and group_count == 1 and not (retry and retry <= tonumber(now_ms)) then
  source, fresh = scheduled, due
elseif #due > 0 then
  -- A caller with old or many groups is not asked for them as long as its own has something
  -- that comes before what is for all.
  local first = tonumber(due[2])
  local count = (group_count == 1 or asof > 0) and covered(audience(), due) or 0
  local ahead = late > 0 or retry and retry <= first
  if count > 0 then
    fan_out(audience(), due, count, queue, scheduled, refs)
    if group_count >= MANY_GROUPS then end_turn(control, channel) end
  elseif ahead and (asof > 0 or group_count >= MANY_GROUPS) then
    fresh = due_of(queue, due[2], reach - late)
    if not still_scheduled(ids_of(fresh)) then return ask() end
  elseif group_count < MANY_GROUPS then
    return ask()
  else
    local turn, wait = elected(control, consumer, now, tonumber(now_ms))
    if turn then return ask() end
    return reply(math.max(1, wait), '')
  end
end
fresh = fresh or due_of(queue, now_ms, reach - late)
local ids, dues, n = {}, {}, 0
for _, list in ipairs({ ended, fresh }) do
  for i = 1, #list, 2 do
    n = n + 1
    ids[n], dues[n] = list[i], list[i + 1]
  end
end

-- The claim chooses messages before it reads them: a body beyond the limit of bytes
-- must not be copied in Redis's memory.
local entries = claimed_before and n > 0 and call('HMGET', attempts, unpack(ids)) or {}
local taken, size, chosen, wanted, places, stop = 0, 0, 0, {}, {}, nil
while taken < n and not stop do
  local i = taken + 1
  if i == late + 1 then limit = math.min(limit, math.max(chosen, late + room)) end
  local id, entry, reason = ids[i], entries[i] or (i <= late and '1'), nil
  local length = call('HSTRLEN', messages, id)
  if entry then entry, reason = next_entry(entry, i <= late, max) end
  if not reason and length == 0 and call('HEXISTS', messages, id) == 0 then reason = 'message body is missing' end
  if reason then
    burials[#burials + 1] = id
    burials[#burials + 1] = reason
    taken = i
  elseif chosen >= limit then
    stop = 'limit'
  elseif entry and entry ~= AHEAD_AGAIN and chosen >= free_workers then
    stop = 'worker'
  else
    if own then length = length + call('HSTRLEN', changed, id) end
    if chosen > 0 and size + length > bytes then
      stop = 'bytes'
    else
      chosen, size, taken = chosen + 1, size + length, i
      wanted[chosen], places[chosen] = id, i
      if entry then entries[i] = entry end
    end
  end
end

local bodies, metadata = texts_of(wanted)
for k = 1, chosen do
  local id, i = wanted[k], places[k]
  give(id, dues[i], entries[i] or '1', bodies[k], metadata[k] or nil)
  if entries[i] then
    entries_given[#entries_given + 1] = id
    entries_given[#entries_given + 1] = entries[i]
  end
end

-- The script adds before it removes: a write that is refused halfway must not leave a
-- message in no set.
local joined = table.concat(details, ' ')
if limits then spend(limits, control, group, given) end
note(joined, ids_given, burials, last_ms)
if #entries_given > 0 then call('HSET', attempts, unpack(entries_given)) end
lease_given()
for i = 1, #burials, 2 do
  bury(dead, reasons, keys, burials[i], now, burials[i + 1])
  call('ZREM', unack, burials[i])
end
if #burials > 0 then make_room(full, unack, channel, group) end
if taken > late then call('ZREM', source, unpack(ids, late + 1, taken)) end

-- wait_us is how long no other message can be due.
local function wait_us()
  if pause_ends then return pause_ends == 0 and -1 or pause_ends * 1000 - now end
  if stop == 'worker' and given >= free_workers then return -2 end
  local first = taken < n and 0 or earliest(scheduled, queue, unack)
  local wait = first and math.max(0, first * 1000 - now) or -1
  if wait ~= 0 or not limits then return wait end
  wait = held_back(limits, unack, full, group, now)
  return wait == 0 and scarce and given >= free_workers and -2 or wait
end
local wait = wait_us()
if not last_ms or math.floor(last_ms / 1000) ~= math.floor(now_ms / 1000) then
  note_alive(consumers, consumer, now_ms, alive, about)
end

-- When nothing more is due, the group's other consumers, which may wait for the same
-- message, need not look. A consumer that claims all the time does not say so each time.
local busy = last_ms and tonumber(now_ms) - last_ms < BUSY_MS
if wait ~= 0 and wait ~= -2 and not busy and call('HLEN', claims) > 1 then
  redis.pcall(NOTIFY, channel, string.format('=%.0f %d %d ', wait, taken, #group) .. group .. consumer)
end
return reply(wait, joined)
