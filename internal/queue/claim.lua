-- claim.lua: lease due messages of one group to one consumer.
--
-- KEYS[1]   scheduled  zset  id -> due, ms: not yet given to the groups
-- KEYS[2]   messages   hash  id -> encoded message
-- KEYS[3]   groups     set   consumer groups
-- KEYS[4]   refs       hash  id -> groups still to finish
-- KEYS[5]   keys       hash  message key -> id
-- KEYS[6]   queue      zset  id -> due, ms: waiting for the group
-- KEYS[7]   unack      zset  id -> lease deadline, ms
-- KEYS[8]   attempts   hash  id -> token of the last delivery
-- KEYS[9]   claims     hash  consumer -> record of its last claim
-- KEYS[10]  dead       zset  id -> when buried, ms
-- KEYS[11]  reasons    hash  id -> why buried
-- KEYS[12]  changed    hash  id -> message as this group changed it
-- KEYS[13..]  queues of the other groups
-- ARGV[1]  group
-- ARGV[2]  consumer
-- ARGV[3]  request  integer; the same request again gets the same messages
-- ARGV[4]  limit    integer, 1..1000
-- ARGV[5]  lease    ms
-- ARGV[6]  max deliveries, 0 for no limit
-- ARGV[7]  bytes    stop taking messages once the bodies reach this size
-- ARGV[8]  channel  where subscribers listen for work
-- ARGV[9..]  the other groups, in the order of their queues
-- Returns  { 'groups', name, ... } when these are the groups instead; nothing changed
--          { 'claimed', lease deadline in ms, µs until the next is due or -1,
--            'due token due token ...' with due in ms, { id, ... }, { body, ... } }

local scheduled, messages, groups, refs, keys = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local queue, unack, attempts, claims = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local dead, reasons, changed = KEYS[10], KEYS[11], KEYS[12]
local group, consumer, request = ARGV[1], ARGV[2], tonumber(ARGV[3])
local limit, lease, max = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local bytes, channel = tonumber(ARGV[7]), ARGV[8]
local others = #KEYS - 12
local BUSY_MS = 2
local MOST_BODIES = 16

local now, now_ms = now_us()
local deadline = int(math.ceil(now / 1000) + lease)

local members = redis.call('SMEMBERS', groups)
if differ(members, 9, group) then return { 'groups', unpack(members) } end

-- bodies_of reads the bodies of some messages, as this group sees them.
local function bodies_of(ids)
  local bodies = redis.call('HMGET', messages, unpack(ids))
  if others > 0 and redis.call('HLEN', changed) > 0 then
    local own = redis.call('HMGET', changed, unpack(ids))
    for i = 1, #ids do bodies[i] = own[i] or bodies[i] end
  end
  return bodies
end

-- wait_us is how long nothing more can be due.
local function wait_us()
  local first
  for _, zset in ipairs({ scheduled, queue, unack }) do
    local due = head(zset)
    if due and (not first or due < first) then first = due end
  end
  return first and math.max(0, first * 1000 - now) or -1
end

-- give leases a message. Tables are filled by a count of our own, since the # of a
-- table takes its time, and so does each value of a reply, hence the joined details.
local given, given_ids, given_bodies, details, leases = 0, {}, {}, {}, {}
local function give(id, due, token, body)
  local i = 2 * given
  details[i + 1], details[i + 2] = due, token
  leases[i + 1], leases[i + 2] = deadline, id
  given = given + 1
  given_ids[given], given_bodies[given] = id, body
end

local function lease_given()
  if given > 0 then redis.call('ZADD', unack, unpack(leases)) end
end

local function reply(wait, joined)
  return { 'claimed', tonumber(deadline), wait, joined, given_ids, given_bodies }
end

-- replay answers a request that was sent again: what it got and still holds.
local function replay(result)
  local joined, ids = unpack(cjson.decode(result))
  local dues, tokens = {}, {}
  for due, token in string.gmatch(joined, '(%S+) (%S+)') do
    dues[#dues + 1], tokens[#tokens + 1] = due, token
  end
  local holds = current(unack, attempts, ids, tokens)
  local bodies = #ids > 0 and bodies_of(ids)
  for i, id in ipairs(ids) do
    if holds[i] and bodies[i] then give(id, dues[i], tokens[i], bodies[i]) end
  end
  redis.call('ZREM', unack, '')
  lease_given()
  return reply(0, table.concat(details, ' '))
end

local last, last_ms = redis.call('HGET', claims, consumer), nil
if last then
  local number, result
  number, last_ms, result = parse_record(last)
  if number == request then return replay(result) end
  -- A late copy of an older request: its caller has long had the answer.
  if number > request then return reply(-1, '') end
end

-- Reading the other keys first makes one of another type fail before any write.
for _, hash in ipairs({ messages, refs, keys, attempts, reasons, changed }) do
  redis.call('HLEN', hash)
end
redis.call('ZCARD', dead)
for i = 13, #KEYS do redis.call('ZCARD', KEYS[i]) end

-- With maxmemory reached, Redis refuses a script's first write if it may need
-- memory. So each script begins with one that frees. It does nothing else, but if
-- the user may not remove, it fails before anything is added.
redis.call('ZREM', unack, '')

local function due_of(zset, count)
  if count <= 0 then return {} end
  return redis.call('ZRANGEBYSCORE', zset, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, count)
end

-- fan_out gives scheduled messages that are due to the queues of all groups.
-- What is taken is removed by id: a removal by rank would remove other messages if
-- Redis did it twice, as it does with an append-only file that a crash has torn
-- in the middle of a script (docs/reliability.md).
local function fan_out(due)
  local scores, counts, moved = {}, {}, {}
  for i = 1, #due, 2 do
    moved[#moved + 1] = due[i]
    scores[i], scores[i + 1] = due[i + 1], due[i]
    counts[i], counts[i + 1] = due[i], int(others + 1)
  end
  if others > 0 then redis.call('HSET', refs, unpack(counts)) end
  redis.call('ZADD', queue, unpack(scores))
  for i = 13, #KEYS do redis.call('ZADD', KEYS[i], unpack(scores)) end
  redis.call('ZREM', scheduled, unpack(moved))
end

-- Leases that ran out come first: those messages have waited longest. Then what
-- is due, in the order of due times: from the group's queue, where retries wait
-- and where several groups get their messages, or, when there is but one group
-- and no retry, straight from scheduled.
local expired = due_of(unack, limit)
local room = limit - #expired / 2
local source, fresh = queue, nil
local due = due_of(scheduled, room)
if #due > 0 then
  local retry = head(queue)
  if others == 0 and not (retry and retry <= tonumber(now_ms)) then
    source, fresh = scheduled, due
  else
    fan_out(due)
  end
end
fresh = fresh or due_of(queue, room)

local ids, dues, n = {}, {}, 0
for _, list in ipairs({ expired, fresh }) do
  for i = 1, #list, 2 do
    n = n + 1
    ids[n], dues[n] = list[i], list[i + 1]
  end
end

local tokens, burials = {}, {}
local size, taken = 0, 0

-- deliver gives a message, or buries it. A token of '0' is of no delivery yet.
local function deliver(id, due, body, last_token)
  local deliveries, releases = 0, 0
  if last_token ~= '0' then deliveries, releases = split(last_token) end
  if not body then
    burials[#burials + 1] = { id, 'message body is missing' }
  elseif max > 0 and deliveries >= max then
    burials[#burials + 1] = { id, 'not acked in ' .. int(deliveries) .. ' deliveries' }
  else
    local this = '1'
    if last_token ~= '0' then
      this = token(deliveries + 1, releases)
      tokens[#tokens + 1] = id
      tokens[#tokens + 1] = this
    end
    give(id, due, this, body)
    size = size + #body
  end
end

-- Bodies are read as many at a time as fit if they are like those before, but never
-- many: large ones behind small ones must not pile up in Redis.
local retries = redis.call('HLEN', attempts) > 0
local step = 4
while taken < n and size < bytes do
  local some = { unpack(ids, taken + 1, math.min(taken + step, n)) }
  local bodies = bodies_of(some)
  local last_tokens = retries and redis.call('HMGET', attempts, unpack(some)) or {}
  for k = 1, #some do
    if size >= bytes then break end
    taken = taken + 1
    local before = taken <= #expired / 2 and '1' or '0'
    deliver(some[k], dues[taken], bodies[k], last_tokens[k] or before)
  end
  if size > 0 then step = math.max(1, math.min(MOST_BODIES, math.floor((bytes - size) * taken / size))) end
end

-- What is added comes before what is removed: a write that is refused half-way
-- must not leave a message in no set.
local joined = table.concat(details, ' ')
write_record(claims, consumer, ARGV[3], now_ms, cjson.encode({ joined, given_ids }), last_ms)
if #tokens > 0 then redis.call('HSET', attempts, unpack(tokens)) end
lease_given()
for _, burial in ipairs(burials) do
  bury(dead, reasons, keys, burial[1], now, burial[2])
  redis.call('ZREM', unack, burial[1])
end
if taken > #expired / 2 then redis.call('ZREM', source, unpack(ids, #expired / 2 + 1, taken)) end

local wait = taken == n and wait_us() or 0

-- Nothing more is due, so the group's other consumers, who may wait for the same
-- message, need not look. A consumer that claims all the time does not tell each time.
local busy = last_ms and tonumber(now_ms) - last_ms < BUSY_MS
if wait ~= 0 and not busy and redis.call('HLEN', claims) > 1 then
  local told = string.format('=%.0f %d %d ', wait, taken, #group)
  redis.pcall(NOTIFY, channel, told .. group .. consumer)
end
return reply(wait, joined)
