-- lib_order.lua: messages with an ordering key, which a group handles one at a time. It follows lib.lua
-- in front of the scripts that have turns among their KEYS.
--
-- turns has for each key that is busy whose turn it is: the id of a message that is in delivery, that waits
-- for a retry or for a claim, or that is a dead message and halts its key. Messages that are due while their key
-- is busy wait in line: in the queue, with IN_LINE added to their due times, so that no claim finds them, and
-- in blocked, which has their order. Whatever ends a turn passes it on to the first in line, which is back in
-- the queue then. A turn whose message is nowhere is passed on by a claim.

-- line_of returns the line of a message: its ordering key with the key's length in front, as the id has it; nil if it has
-- no ordering key. Fields of turns are lines, and members of blocked begin with their lines. The length makes sure that no
-- line begins with another one.
local function line_of(id)
  local length, key = string.match(id, '^=(%d+),()', 27)
  return length and string.sub(id, 28, key + length - 1)
end

-- lines_of returns the lines of messages, and how many have one. If any has, it checks the types of keys.
local function lines_of(ids, turns, blocked, queue)
  local lines, n = {}, 0
  for i, id in ipairs(ids) do
    local line = #id > 27 and line_of(id) or false
    if line then n = n + 1 end
    lines[i] = line
  end
  if n > 0 then
    expect_hashes(turns)
    expect_zsets(queue)
    redis.call('ZRANGEBYLEX', blocked, '+', '-') -- the user may lack the right, which a half-done script must not find out
  end
  return lines, n
end

-- A place in line: the line, the due time in sixteen digits, the id. Keys may have any bytes, and Redis's %s ends at a
-- NUL. The Redis of redisdelaytest formats no text as a number.
local function place_of(line, due, id) return line .. string.format('%016.0f', tonumber(due)) .. id end

-- line_in is the line in a place. One that is garbled is its own line, which has no message.
local function line_in(place)
  local length, from = string.match(place, '^(%d+),()')
  return from and string.sub(place, 1, from + length - 1) or place
end

-- leave_lines takes messages that wait in line out of the queue, or lets them wait there for a due time, and then
-- out of blocked: a place without its message does no harm, but a message without its place would wait for ever.
local function leave_lines(blocked, queue, ids, lines, due)
  for i, id in ipairs(ids) do
    local score = lines[i] and redis.call('ZSCORE', queue, id)
    if score and tonumber(score) >= IN_LINE then
      if due then redis.call('ZADD', queue, due, id) else redis.call('ZREM', queue, id) end
      redis.call('ZREM', blocked, place_of(lines[i], score - IN_LINE, id))
    end
  end
end

-- first_place returns the first place of a line, the message there, and when it was due, nil if it is garbled; nothing if
-- nobody waits.
local function first_place(blocked, line)
  local place = redis.call('ZRANGEBYLEX', blocked, '[' .. line, '[' .. line .. '\255', 'LIMIT', 0, 1)[1]
  if not place then return end
  return place, string.sub(place, #line + 17), tonumber(string.sub(place, #line + 1, #line + 16))
end

-- first_in returns the same, but drops places whose messages are not there; false if there may be more of them.
local function first_in(blocked, queue, line)
  for _ = 1, 100 do
    local place, id, due = first_place(blocked, line)
    if not place then return end
    local score = redis.call('ZSCORE', queue, id)
    if due and score and tonumber(score) == due + IN_LINE then return place, id, due end
    redis.call('ZREM', blocked, place)
  end
  return false
end

-- pass_turns ends the turns of some messages, and reports whether others have them now. lines has their lines, or
-- false. The caller then takes the messages out of the sets: if it is interrupted before, they are claimed again. An id that
-- is false ends the turn that nobody has.
local function pass_turns(turns, blocked, queue, ids, lines)
  local some, ending = {}, {}
  for i, id in ipairs(ids) do
    if lines[i] then
      some[#some + 1], ending[#ending + 1] = lines[i], id
    end
  end
  if #some == 0 then return false end
  local heads, places, waiting, whens, over = {}, {}, {}, {}, {} -- the first in line, line by line
  local some_wait = redis.call('ZCARD', blocked) > 0 -- a look for each line would take a tenth of a drain's time
  for i, owner in ipairs(redis.call('HMGET', turns, unpack(some))) do
    if owner == ending[i] then
      local line, n = some[i], #heads + 1
      local place, id, due
      if some_wait then place, id, due = first_place(blocked, line) end
      if place then
        heads[n], places[n], waiting[n], whens[n] = line, place, id, due
      else
        over[#over + 1] = line
      end
    end
  end
  local scores, given, dues, left = #heads > 0 and redis.call('ZMSCORE', queue, unpack(waiting)) or {}, {}, {}, {}
  for i, line in ipairs(heads) do
    local place, id, due, n = places[i], waiting[i], whens[i], 2 * #left
    if not due or tonumber(scores[i] or 0) ~= due + IN_LINE then place, id, due = first_in(blocked, queue, line) end
    if place then
      given[n + 1], given[n + 2] = line, id
      dues[n + 1], dues[n + 2] = int(due), id
      left[#left + 1] = place
    elseif place == nil then
      over[#over + 1] = line
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

-- put_off takes messages out of their lines, and ends their turns: they get a later due time or, without one, leave
-- the queue.
local function put_off(turns, blocked, queue, ids, lines, due)
  leave_lines(blocked, queue, ids, lines, due)
  return pass_turns(turns, blocked, queue, ids, lines)
end
