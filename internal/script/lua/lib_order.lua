-- lib_order.lua: messages with an ordering key, which a group handles one at a time. It follows lib.lua
-- in front of the scripts that have turns among their KEYS.
--
-- turns has for each key that is busy whose turn it is: the id of a message that is in delivery, that waits
-- for a retry or for a claim, or that is a dead letter and halts its key. Messages that are due while their key
-- is busy wait in line: in the queue, with IN_LINE added to their due times, so that no claim finds them, and
-- in lanes, which has their order. Whatever ends a turn passes it on to the first in line, which is back in
-- the queue then. A turn whose message is nowhere is passed on by a claim.

-- line_of is what fields of turns, and members of lanes, begin with, for the ordering key of a message; nil if it
-- has none. The length makes sure that no line begins with another one.
local function line_of(id)
  local length, from = string.match(id, '^~?%d*=(%d+),()', 27)
  return length and string.format('%s:%s', length, string.sub(id, from, from + length - 1)) or nil
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
    expect_zsets(lanes, queue)
  end
  return lines, n
end

-- A place in line: the line, the due time in sixteen digits, the id.
local function place_of(line, due, id) return string.format('%s%016.0f%s', line, due, id) end

-- leave_line takes a message that waits in line out of lanes. score is that in the queue.
local function leave_line(lanes, line, score, id)
  if line and score and tonumber(score) >= IN_LINE then
    redis.call('ZREM', lanes, place_of(line, score - IN_LINE, id))
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
-- false. The caller then takes the messages out of the sets: if it is interrupted before, they come again.
local function pass_turns(turns, lanes, queue, ids, lines, count)
  local passed = false
  for i = 1, count or #ids do
    if lines[i] and redis.call('HGET', turns, lines[i]) == ids[i] then
      local id, due, place = first_in(lanes, queue, lines[i])
      if id then
        redis.call('HSET', turns, lines[i], id)
        redis.call('ZADD', queue, int(due), id)
        redis.call('ZREM', lanes, place)
        passed = true
      elseif id == nil then
        redis.call('HDEL', turns, lines[i])
      end
    end
  end
  return passed
end

-- put_off takes messages that wait and get a later due time out of their lines, and ends their turns.
local function put_off(turns, lanes, queue, ids, lines)
  for i, id in ipairs(ids) do
    if lines[i] then leave_line(lanes, lines[i], redis.call('ZSCORE', queue, id), id) end
  end
  return pass_turns(turns, lanes, queue, ids, lines)
end
