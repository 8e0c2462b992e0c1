-- bodiless.lua: look for messages in one place that have no body. It changes nothing.
--
-- KEYS[1]  messages   hash  id -> encoded message
-- KEYS[2]  scheduled  zset  id -> due, ms: not given to the groups yet
-- KEYS[3]  queue      zset  id -> due, ms: waiting for the group
-- KEYS[4]  unack      zset  id -> lease deadline, ms
-- KEYS[5]  dead       zset  id -> when buried, ms
-- ARGV[1]  place      scheduled, queue, unack or dead
-- ARGV[2]  cursor     0 to begin
-- ARGV[3]  count      about how many to look at
-- Returns  { cursor, how many it has looked at, id, ... }: the cursor goes on from here; 0 after
--          the last

local messages, scheduled, queue, unack, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local place, cursor, count = ARGV[1], ARGV[2], ARGV[3]

local set = ({ scheduled = scheduled, queue = queue, unack = unack, dead = dead })[place]
local found = redis.call('ZSCAN', set, cursor, 'COUNT', count)
local result = { found[1], #found[2] / 2 }
for i = 1, #found[2], 2 do
  local id = found[2][i]
  if redis.call('HEXISTS', messages, id) == 0 then result[#result + 1] = id end
end
return result
