-- withdraw.lua: take back messages that no group has been given yet, as many as their size
-- allows, free their keys and end their windows, as cancel.lua does. One that has another
-- due time than the caller has seen stays.
--
-- KEYS[1]  scheduled  zset  id -> due, ms
-- KEYS[2]  messages   hash  id -> encoded message
-- KEYS[3]  keys       hash  message key -> id
-- KEYS[4]  taken      zset  message key -> until when it is taken, ms
-- ARGV[1]  bytes      of bodies to remove at most, unless the first has more
-- ARGV[2..]  for each message: id, due
-- Returns  { { id, ... }, { id, ... } }: those that are not scheduled for that time, and
--          those to send again

local scheduled, messages, keys, taken = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local bytes = tonumber(ARGV[1])

local ids, dues = columns(2, 2)
expect_hashes(messages, keys)
expect_zsets(taken)
local found, missing, left, windows, size = {}, {}, {}, {}, 0
for i, due in ipairs(redis.call('ZMSCORE', scheduled, unpack(ids))) do
  local id = ids[i]
  if not due or tonumber(due) ~= tonumber(dues[i]) then
    missing[#missing + 1] = id
  else
    size = size + redis.call('HSTRLEN', messages, id)
    local list = (#found == 0 or size <= bytes) and found or left
    list[#list + 1] = id
    local key = list == found and key_of(id)
    if key and redis.call('HGET', keys, key) == id then windows[#windows + 1] = key end
  end
end
if #found == 0 then return { missing, left } end

-- The order is that of cancel.lua: no key stays held for ever, and what a torn file leaves
-- half done is still in scheduled, for a repeated call.
begin_writes(scheduled)
if #windows > 0 then redis.call('ZREM', taken, unpack(windows)) end
redis.call('HDEL', messages, unpack(found))
for _, id in ipairs(found) do free(keys, id) end
redis.call('ZREM', scheduled, unpack(found))
return { missing, left }
