-- lib_order.lua: messages with an ordering key, which a group handles one at a time. It follows lib.lua
-- in front of the scripts that have turns among their KEYS.
--
-- turns has for each key that is busy whose turn it is: the id of a message that is in delivery, that waits
-- for a retry or for a claim, or that is a dead letter and halts its key. Messages that are due while their key
-- is busy wait in line: in the queue, with IN_LINE added to their due times, so that no claim finds them, and
-- in lanes, which has their order. Whatever ends a turn passes it on to the first in line, which is back in
-- the queue then. A turn whose message is nowhere is passed on by a claim.

-- line_of is what fields of turns, and members of lanes, begin with, for the ordering key of a message: the key with
-- its length in front, as the id has it; nil if it has none. The length makes sure that no line begins with another one.
local function line_of(id)
  local from, length, key = string.match(id, '^~?%d*=()(%d+),()', 27)
  return from and string.sub(id, from, key + length - 1)
end

-- lines_of returns the lines of messages, and how many have one. If any has, it checks the types of keys.
local function lines_of(ids, turns, lanes, queue)
  local lines, n = {}, 0
  for i, id in ipairs(ids) do
    local line = #id > 27 and line_of(id) or false
    if line then n = n + 1 end
    lines[i] = line
  end
  if n > 0 then
    expect_hashes(turns)
    expect_zsets(queue)
    redis.call('ZRANGEBYLEX', lanes, '+', '-') -- the user may lack the right, which a half-done script must not find out
  end
  return lines, n
end

-- A place in line: the line, the due time in sixteen digits, the id. The Redis of redisdelaytest formats no text as a
-- number.
local function place_of(line, due, id) return string.format('%s%016.0f%s', line, tonumber(due), id) end

-- line_in is the line in a place.
local function line_in(place)
  local length, from = string.match(place, '^(%d+),()')
  return string.sub(place, 1, from + length - 1)
end

-- leave_lines takes messages that wait in line out of the queue, or lets them wait there for a due time, and then
-- out of lanes: a place without its message does no harm, but a message without its place would wait for ever.
local function leave_lines(lanes, queue, ids, lines, due)
  for i, id in ipairs(ids) do
    local score = lines[i] and redis.call('ZSCORE', queue, id)
    if score and tonumber(score) >= IN_LINE then
      if due then redis.call('ZADD', queue, due, id) else redis.call('ZREM', queue, id) end
      redis.call('ZREM', lanes, place_of(lines[i], score - IN_LINE, id))
    end
  end
end

-- first_in returns the first message in a line, when it was due, and its place; nil if nobody waits; false if it
-- has dropped many places whose messages are not there, and there may be more.
local function first_in(lanes, queue, line)
  for _ = 1, 100 do
    local place = redis.call('ZRANGEBYLEX', lanes, '[' .. line, '[' .. line .. '\255', 'LIMIT', 0, 1)[1]
    if not place then return end
    local due, id = tonumber(string.sub(place, #line + 1, #line + 16)), string.sub(place, #line + 17)
    local score = redis.call('ZSCORE', queue, id)
    if score and tonumber(score) == due + IN_LINE then return id, due, place end
    redis.call('ZREM', lanes, place)
  end
  return false
end

-- pass_turns ends the turns of some messages, and tells whether others have them now. lines has their lines, or
-- false. The caller then takes the messages out of the sets: if it is interrupted before, they come again. An id that
-- is false ends the turn that nobody has.
local function pass_turns(turns, lanes, queue, ids, lines, count)
  local some, ending = {}, {}
  for i = 1, count or #ids do
    if lines[i] then
      some[#some + 1], ending[#ending + 1] = lines[i], ids[i]
    end
  end
  if #some == 0 then return false end
  local owners, over, dues, places = redis.call('HMGET', turns, unpack(some)), {}, {}, {}
  local heads, n = {}, 0 -- whose turn it is now, line by line
  for i, line in ipairs(some) do
    local id, due, place
    if owners[i] == ending[i] then id, due, place = first_in(lanes, queue, line) end
    if id then
      n = n + 1
      heads[2 * n - 1], heads[2 * n] = line, id
      dues[2 * n - 1], dues[2 * n] = int(due), id
      places[n] = place
    elseif id == nil and owners[i] == ending[i] then
      over[#over + 1] = line
    end
  end
  if n > 0 then
    redis.call('HSET', turns, unpack(heads))
    redis.call('ZADD', queue, unpack(dues))
    redis.call('ZREM', lanes, unpack(places))
  end
  if #over > 0 then redis.call('HDEL', turns, unpack(over)) end
  return n > 0
end

-- put_off takes messages out of their lines, and ends their turns: they get a later due time or, without one, leave
-- the queue.
local function put_off(turns, lanes, queue, ids, lines, due)
  leave_lines(lanes, queue, ids, lines, due)
  return pass_turns(turns, lanes, queue, ids, lines)
end
