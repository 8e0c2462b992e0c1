-- depart.lua: take messages out of a place of the group, to move them to another topic. They
-- wait in moving, where nobody is given them, until departed.lua ends their move. Their
-- bodies stay, and so does what the group keeps of them; a key is free once no other group
-- needs its message.
--
-- KEYS[1]  moving      hash  id -> where it was, and where it is moved to
-- KEYS[2]  publishers  hash  batch -> record of its end
-- KEYS[3]  messages    hash  id -> encoded message
-- KEYS[4]  refs        hash  id -> names of the groups still to finish
-- KEYS[5]  keys        hash  message key -> id
-- KEYS[6]  scheduled   zset  id -> due, ms: not given to the groups yet
-- KEYS[7]  queue       zset  id -> due, ms: waiting for the group
-- KEYS[8]  dead        zset  id -> when buried, ms
-- ARGV[1]  batch      unique to one call; the same to send it again
-- ARGV[2]  until      ms by Redis's clock; after that, the call changes nothing
-- ARGV[3]  topic      that they are moved to
-- ARGV[4]  partition  of that topic
-- ARGV[5]  place      scheduled, queue or dead
-- ARGV[6]  group      '' for scheduled
-- ARGV[7..]  for each message: id, score
--            only if it has this score; '' for any
-- Returns  { 'moving', id, ... }: those that the batch has taken out; without what is
--          somewhere else, has no body or is moved by another batch
--          { 'late', now in ms }: the time is over; nothing changed

local moving, publishers, messages, refs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local keys, scheduled, queue, dead = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local batch, till, topic, partition = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local place, group, call = ARGV[5], ARGV[6], redis.call
local ids, scores = columns(7, 2)

local now, now_ms = now_us()
if now > till * 1000 then return { 'late', now_ms } end
-- A copy that comes after the end of the move takes out nothing that was put back.
if #ids == 0 or recorded(publishers, batch) > 0 then return { 'moving' } end

local from = ({ scheduled = scheduled, queue = queue, dead = dead })[place]
local found, before = call('ZMSCORE', from, unpack(ids)), call('HMGET', moving, unpack(ids))
local several, keyed = call('HLEN', refs) > 0, call('HLEN', keys) > 0

-- hold is what keys has for a message that only this group needs: held, lost, or nil.
local function hold(id)
  local key = keyed and key_of(id)
  local holder = key and call('HGET', keys, key)
  if holder ~= id and holder ~= LOST .. id then return end
  if several and #plan_release(refs, { id }, group).unneeded == 0 then return end
  return holder == id and 'held' or 'lost'
end

local rows, out, departed, freed = {}, {}, { 'moving' }, {}
for i, id in ipairs(ids) do
  local known = before[i] and moved_by(before[i], batch)
  if known or not before[i] and found[i] and (scores[i] == '' or scores[i] == found[i])
    and call('HEXISTS', messages, id) == 1 then
    departed[#departed + 1] = id
    if found[i] then
      local key = hold(id)
      if key then freed[#freed + 1] = key_of(id) end
      if not known then
        rows[#rows + 1] = id
        rows[#rows + 1] = cjson.encode({
          to = topic, partition = partition, batch = batch, move = batch, since = tonumber(now_ms),
          place = place, group = group, score = found[i], key = key,
        })
      end
      out[#out + 1] = id
    end
  end
end
if #out == 0 then return departed end

begin_writes(from)
call('HDEL', keys, '')
if #rows > 0 then call('HSET', moving, unpack(rows)) end
call('ZREM', from, unpack(out))
if #freed > 0 then call('HDEL', keys, unpack(freed)) end
return departed
