-- lib_order.lua: messages with an ordering key, which a group handles one at a time. It follows lib.lua
-- in front of the scripts that have turns among their KEYS.
--
-- turns has the message whose turn it is for each busy ordering key. This message is in delivery, waits for a
-- retry or a claim, or is dead and halts its key. Other messages of the key that become due wait in line: in the
-- queue, with IN_LINE added to their due times so that no claim finds them, and in blocked, which keeps their
-- order. A script that ends a turn passes it on to the first message in line, which gets its due time in the
-- queue again. If the message that has the turn is nowhere, a claim passes the turn on.

-- order_key_of returns the ordering key of a message, with its length in front, as the id has it; nil if it has none. Fields of
-- turns are such keys, and members of blocked begin with them. Because of the length, no key is a prefix of another one.
local function order_key_of(id)
  local length, key = string.match(id, '^=(%d+),()', 27)
  return length and string.sub(id, 28, key + length - 1)
end

-- order_keys_of returns the ordering keys of messages, and how many have one. If any has, it checks the types of Redis's keys.
local function order_keys_of(ids, turns, blocked, queue)
  local order_keys, n = {}, 0
  for i, id in ipairs(ids) do
    local order_key = #id > 27 and order_key_of(id) or false
    if order_key then n = n + 1 end
    order_keys[i] = order_key
  end
  if n > 0 then
    expect_hashes(turns)
    expect_zsets(queue)
    redis.call('ZRANGEBYLEX', blocked, '+', '-') -- fails before any write if the user lacks the right
  end
  return order_keys, n
end

-- place_of returns a place in line: the ordering key, the due time in sixteen digits, the id. Keys may have any bytes, and
-- Redis's %s ends at a NUL. The Redis of redisdelaytest formats no text as a number.
local function place_of(order_key, due, id) return order_key .. string.format('%016.0f', tonumber(due)) .. id end

-- order_key_in returns the ordering key of a place. A garbled place counts as a key of its own, without messages.
local function order_key_in(place)
  local length, from = string.match(place, '^(%d+),()')
  return from and string.sub(place, 1, from + length - 1) or place
end

-- leave_line removes messages that wait in line from the queue, or gives them a due time there. Then it removes their places: a
-- place without its message does no harm, but a message without its place would wait for ever.
local function leave_line(blocked, queue, ids, order_keys, due)
  for i, id in ipairs(ids) do
    local score = order_keys[i] and redis.call('ZSCORE', queue, id)
    if score and tonumber(score) >= IN_LINE then
      if due then redis.call('ZADD', queue, due, id) else redis.call('ZREM', queue, id) end
      redis.call('ZREM', blocked, place_of(order_keys[i], score - IN_LINE, id))
    end
  end
end

-- first_place returns the first place of an ordering key, the message there, and its due time, nil if it is garbled; nothing
-- if no message waits.
local function first_place(blocked, order_key)
  local place = redis.call('ZRANGEBYLEX', blocked, '[' .. order_key, '[' .. order_key .. '\255', 'LIMIT', 0, 1)[1]
  if not place then return end
  return place, string.sub(place, #order_key + 17), tonumber(string.sub(place, #order_key + 1, #order_key + 16))
end

-- first_in returns the same for the first place whose message is there, and removes places before it; false after 100.
local function first_in(blocked, queue, order_key)
  for _ = 1, 100 do
    local place, id, due = first_place(blocked, order_key)
    if not place then return end
    local score = redis.call('ZSCORE', queue, id)
    if due and score and tonumber(score) == due + IN_LINE then return place, id, due end
    redis.call('ZREM', blocked, place)
  end
  return false
end

-- pass_turns ends the turns of messages, and reports whether other messages have them now. order_keys has the key of each
-- message, or false. The caller then removes the messages from their sets: if it is interrupted before, they are claimed
-- again. The id false stands for a key whose turn no message has.
local function pass_turns(turns, blocked, queue, ids, order_keys)
  local some, ending = {}, {}
  for i, id in ipairs(ids) do
    if order_keys[i] then
      some[#some + 1], ending[#ending + 1] = order_keys[i], id
    end
  end
  if #some == 0 then return false end
  local heads, places, waiting, whens, over = {}, {}, {}, {}, {} -- the first in line, key by key
  local some_wait = redis.call('ZCARD', blocked) > 0 -- a read for each key would take a tenth of a drain's time
  for i, owner in ipairs(redis.call('HMGET', turns, unpack(some))) do
    if owner == ending[i] then
      local order_key, n = some[i], #heads + 1
      local place, id, due
      if some_wait then place, id, due = first_place(blocked, order_key) end
      if place then
        heads[n], places[n], waiting[n], whens[n] = order_key, place, id, due
      else
        over[#over + 1] = order_key
      end
    end
  end
  local scores, given, dues, left = #heads > 0 and redis.call('ZMSCORE', queue, unpack(waiting)) or {}, {}, {}, {}
  for i, order_key in ipairs(heads) do
    local place, id, due, n = places[i], waiting[i], whens[i], 2 * #left
    if not due or tonumber(scores[i] or 0) ~= due + IN_LINE then place, id, due = first_in(blocked, queue, order_key) end
    if place then
      given[n + 1], given[n + 2] = order_key, id
      dues[n + 1], dues[n + 2] = int(due), id
      left[#left + 1] = place
    elseif place == nil then
      over[#over + 1] = order_key
    end
  end
  if #left > 0 then
    redis.call('HSET', turns, unpack(given))
    redis.call('ZADD', queue, unpack(dues))
    redis.call('ZREM', blocked, unpack(left))
  end
  if #over > 0 then redis.call('HDEL', turns, unpack(over)) end
  return #left > 0
end

-- postpone removes messages from their places in line, and ends their turns. In the queue, they get a later due time or,
-- without one, are removed.
local function postpone(turns, blocked, queue, ids, order_keys, due)
  leave_line(blocked, queue, ids, order_keys, due)
  return pass_turns(turns, blocked, queue, ids, order_keys)
end
