-- withdraw.lua: take messages out of one place, as many as their size and the number of groups
-- allow. In scheduled, no group has been given them: their keys are free and their windows
-- end, as in cancel.lua. In a queue, or among the dead letters, they end for that group alone, as
-- in discard.lua. One that has another score than the caller has seen stays.
--
-- KEYS     scheduled, messages, keys, taken, refs, arrived, queue, dead, attempts, reasons, changed,
--          turns, lanes
-- ARGV[1]  place      'scheduled', 'queue' or 'dead'
-- ARGV[2]  group      '' in scheduled
-- ARGV[3]  bytes      of bodies to remove at most, unless the first has more
-- ARGV[4]  since      ms, as arrived has it: a message stays if a move has brought it, or found it
--                     here, since then. '' if the messages do not leave by a move
-- ARGV[5]  channel    where subscribers listen for notifications
-- ARGV[6..]  for each message: id, score
-- Returns  { { id, ... }, { id, ... } }: those that stay, and those to send again

local place, group, bytes, since = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local channel = ARGV[5]
local zset = ({ scheduled = scheduled, queue = queue, dead = dead })[place]

local ids, scores = columns(6, 2)
expect_hashes(messages, keys, refs, attempts, reasons, changed)
expect_zsets(taken, arrived)
local names = {}
for i, id in ipairs(ids) do names[i] = string.sub(id, 1, 26) .. '/' end
local met = since and redis.call('ZMSCORE', arrived, unpack(names)) or {}

local found, missing, left, over, size = {}, {}, {}, {}, 0
for i, score in ipairs(redis.call('ZMSCORE', zset, unpack(ids))) do
  local id = ids[i]
  if not score or tonumber(score) ~= tonumber(scores[i]) or met[i] and tonumber(met[i]) >= since then
    missing[#missing + 1] = id
  else
    size = size + redis.call('HSTRLEN', messages, id)
    local list = (#found == 0 or size <= bytes) and found or left
    list[#list + 1] = id
    if met[i] and list == found then over[#over + 1] = names[i] end
  end
end
if #found == 0 then return { missing, left } end

-- The id leaves its set after its body: no key stays held for ever, and what a torn file leaves
-- half done is still there, for a repeated call.
begin_writes(zset)
redis.call('HDEL', attempts, '')
if #over > 0 then redis.call('ZREM', arrived, unpack(over)) end
if place == 'scheduled' then
  for _, id in ipairs(found) do
    local key = key_of(id)
    if key and redis.call('HGET', keys, key) == id then redis.call('ZREM', taken, key) end
  end
  redis.call('HDEL', messages, unpack(found))
  for _, id in ipairs(found) do free(keys, id) end
  redis.call('ZREM', scheduled, unpack(found))
  return { missing, left }
end
local lines, ordered = lines_of(found, turns, lanes, queue)
local ended = finish(messages, refs, changed, keys, found, group)
if ordered > 0 then
  for i = ended + 1, #found do lines[i] = false end
  if put_off(turns, lanes, queue, found, lines) then wake(channel, 0, 0, group) end
end
redis.call('ZREM', zset, unpack(found, 1, ended))
redis.call('HDEL', reasons, unpack(found, 1, ended))
redis.call('HDEL', attempts, unpack(found, 1, ended))
for i = ended + 1, #found do left[#left + 1] = found[i] end
return { missing, left }
