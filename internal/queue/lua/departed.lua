-- departed.lua: end the move of messages. Those that have arrived end for their group, as in
-- an ack; the others go back to where they were, unless their group is retired by now.
--
-- KEYS[1]   moving      hash  id -> where it was, and where it is moved to
-- KEYS[2]   publishers  hash  batch -> record of its end
-- KEYS[3]   scheduled   zset  id -> due, ms: not given to the groups yet
-- KEYS[4]   messages    hash  id -> encoded message
-- KEYS[5]   refs        hash  id -> names of the groups still to finish
-- KEYS[6]   keys        hash  message key -> id
-- KEYS[7]   control     hash  what groups are told: see lib_groups.lua
-- KEYS[8]   arrived     zset  id without its key, or a move of it -> until when to remember it, ms
-- KEYS[9]   queue       zset  id -> due, ms: waiting for the group
-- KEYS[10]  dead        zset  id -> when buried, ms
-- KEYS[11]  attempts    hash  id -> fence/seen/unsure
-- KEYS[12]  reasons     hash  id -> why buried
-- KEYS[13]  changed     hash  id -> metadata as a middleware of this group left them
-- ARGV[1]   batch
-- ARGV[2]   group       of all its messages; '' for scheduled
-- ARGV[3]   channel     where subscribers listen for notifications
-- ARGV[4]   bytes       of bodies to remove at most, unless the first has more
-- ARGV[5..]  for each message: id, how
--            'arrived' or 'back'
-- Returns   { id, ... }: those to send again. What the batch does not move is left alone

local moving, publishers, scheduled, messages = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refs, keys, control, arrived = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local queue, dead, attempts, reasons, changed = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local batch, group, channel, bytes = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local ids, how = columns(5, 2)
local sets, call = { scheduled = scheduled, queue = queue, dead = dead }, redis.call

expect_hashes(messages, refs, keys, attempts, reasons, changed)
expect_zsets(scheduled, arrived, queue, dead)
local now, now_ms = now_us()
local number, last_ms = recorded(publishers, batch)
local retired = group ~= '' and tombstone(control, group)

local ended, back, moves, left, size = {}, {}, {}, {}, 0
for i, id in ipairs(ids) do
  local move = move_of(call('HGET', moving, id))
  if move and move.batch == batch and move.group == group then
    if how[i] == 'back' and not retired and sets[move.place] and call('HEXISTS', messages, id) == 1 then
      back[#back + 1] = id
      moves[id] = move
    else
      size = size + call('HSTRLEN', messages, id)
      local list = (#ended == 0 or size <= bytes) and ended or left
      list[#list + 1] = id
    end
  end
end
if #ended == 0 and #back == 0 then return left end

-- hold gives a message its key back, unless another has it by now.
local function hold(id, was)
  local key = key_of(id)
  if was and key then call('HSETNX', keys, key, was == 'held' and id or LOST .. id) end
end

-- The record comes first: a late copy of depart.lua must not take out what goes back.
begin_writes(scheduled)
call('HDEL', moving, '')
call('HDEL', keys, '')
if number == 0 then write_record(publishers, batch, 1, now_ms, '', last_ms) end
local first
for _, id in ipairs(back) do
  local move = moves[id]
  call('ZADD', sets[move.place], 'NX', move.score, id)
  hold(id, move.key)
  call('HDEL', moving, id)
  local due = move.place ~= 'dead' and tonumber(move.score)
  if due and due <= (first or due) then first = due end
end
if first then wake(channel, now, first, group ~= '' and group or nil) end
if #ended == 0 then return left end

local n = finish(messages, refs, changed, keys, ended, group)
for i = 1, n do
  local id = ended[i]
  call('HDEL', reasons, id)
  call('HDEL', attempts, id)
  call('ZREM', arrived, string.sub(id, 1, 26))
  call('HDEL', moving, id)
end
for i = n + 1, #ended do left[#left + 1] = ended[i] end
return left
