-- lib_claim_order.lua: functions of claim.lua for ordering keys. It follows lib_order.lua in front
-- of claim.lua, whose keys it uses.
--
-- In a batch, owners has the message whose turn it is for each ordering key that was read, or false; checked has the keys whose
-- owner is verified; turns has keys and their new owners; and waiting has the messages that must wait in line, with their places
-- and scores. The first messages of waiting, lost in number, have expired leases.

local ORDER_KEYS_AT_ONCE = 100

-- begins_busy reports whether another message has the turn of the first due message. Only then does a claim
-- check more messages than it may lease.
local function begins_busy(zset, now_ms)
  local id = due_of(zset, now_ms, 1)[1]
  local order_key = id and order_key_of(id)
  local owner = order_key and redis.call('HGET', turns, order_key)
  return owner and owner ~= id
end

-- has_turn reports whether a message has its turn: it is in delivery, or waits for a retry or a claim, or is dead
-- and halts its key.
local function has_turn(id, halts)
  local call = redis.call
  if call('ZSCORE', unack, id) then return true end
  local waits = call('ZSCORE', queue, id)
  if waits and tonumber(waits) < IN_LINE then return true end
  return halts and call('ZSCORE', dead, id)
end

-- next_order_keys returns the ordering keys of the next messages of a list, by their position in the list, and reads which
-- messages have the turns.
local function next_order_keys(batch, ids, from)
  local order_keys, unknown = {}, {}
  for i = from, math.min(#ids, from + ORDER_KEYS_AT_ONCE - 1) do
    local order_key = #ids[i] > 27 and order_key_of(ids[i])
    if order_key then
      order_keys[i] = order_key
      if batch.owners[order_key] == nil then
        batch.owners[order_key] = false
        unknown[#unknown + 1] = order_key
      end
    end
  end
  if #unknown == 0 or not batch.has_turns then return order_keys end
  local holders, held = {}, {}
  for i, owner in ipairs(redis.call('HMGET', turns, unpack(unknown))) do
    local order_key = unknown[i]
    batch.owners[order_key] = owner
    if owner then holders[#holders + 1], held[#held + 1] = owner, order_key end
  end
  if #holders == 0 then return order_keys end
  for i, leased in ipairs(redis.call('ZMSCORE', unack, unpack(holders))) do
    if leased then batch.checked[held[i]] = true end
  end
  return order_keys
end

-- is_busy reports whether another message has the turn of an ordering key; it heals the turn first.
local function is_busy(batch, order_key, id)
  local owner = batch.owners[order_key]
  if owner and owner ~= id and not batch.checked[order_key] then
    batch.checked[order_key] = true
    if not has_turn(owner, batch.halts) then
      pass_turns(turns, blocked, queue, { owner }, { order_key })
      owner = redis.call('HGET', turns, order_key)
      batch.owners[order_key] = owner
    end
  end
  return owner and owner ~= id
end

-- give_turn gives the turn of an ordering key to a message of the batch.
local function give_turn(batch, order_key, id)
  batch.checked[order_key] = true -- take adds it to unack; until then, a torn file may have left it only in scheduled
  if batch.owners[order_key] == id then return end
  batch.owners[order_key] = id
  batch.turns[#batch.turns + 1], batch.turns[#batch.turns + 2] = order_key, id
end

-- send_in_line adds a message to those that wait for their turns.
local function send_in_line(batch, order_key, id, due)
  local n = #batch.waiting + 1
  batch.waiting[n], batch.places[2 * n - 1], batch.places[2 * n] = id, 0, place_of(order_key, due, id)
  batch.scores[2 * n - 1], batch.scores[2 * n] = int(due + IN_LINE), id
end

-- line_up writes the messages that send_in_line has added.
local function line_up(batch)
  redis.call('ZADD', blocked, unpack(batch.places))
  redis.call('ZADD', queue, unpack(batch.scores))
  if batch.lost > 0 then redis.call('ZREM', unack, unpack(batch.waiting, 1, batch.lost)) end
end

-- heal checks a few turns and places of the group. If the message that has a turn is nowhere, or no message has the turn
-- of an ordering key, it passes the turn to the first message in line. It reports whether it repaired any. A torn file may leave
-- such turns; so does an operator who no longer lets dead messages halt their keys.
local function heal(halts)
  local some, healed = redis.pcall('HRANDFIELD', turns, 3, 'WITHVALUES'), false
  for i = 1, #some, 2 do
    if not has_turn(some[i + 1], halts) then
      pass_turns(turns, blocked, queue, { some[i + 1] }, { some[i] })
      healed = true
    end
  end
  for _, place in ipairs(redis.pcall('ZRANDMEMBER', blocked, 3)) do
    local order_key = order_key_in(place)
    if redis.call('HEXISTS', turns, order_key) == 0 then
      pass_turns(turns, blocked, queue, { false }, { order_key })
      healed = true
    end
  end
  return healed
end
