-- withdraw.lua: take back scheduled messages, which no group has been given, as many as their size allows:
-- their keys are free and their windows end, as in cancel.lua. A message stays if its due time is not the
-- one that the caller has seen.
--
-- KEYS     scheduled, messages, keys, dedup
-- ARGV[1]  bytes  of bodies to remove at most, unless the first has more
-- ARGV[2..]  for each message: id, score
-- Returns  { { id, ... }, { id, ... } }: those that stay, and those to send again

local bytes = tonumber(ARGV[1])
local ids, scores = columns(2, 2)
expect_hashes(messages, keys)
expect_zsets(dedup)

local found, missing, left, size = {}, {}, {}, 0
for i, score in ipairs(redis.call('ZMSCORE', scheduled, unpack(ids))) do
  local id = ids[i]
  if not score or tonumber(score) ~= tonumber(scores[i]) then
    missing[#missing + 1] = id
  else
    size = size + redis.call('HSTRLEN', messages, id)
    local list = (#found == 0 or size <= bytes) and found or left
    list[#list + 1] = id
  end
end
if #found == 0 then return { missing, left } end

-- The id leaves its set after its body: no key stays held for ever, and what a torn file leaves
-- half done is still there, for a repeated call.
begin_writes(scheduled)
for _, id in ipairs(found) do
  local key = key_of(id)
  if key and redis.call('HGET', keys, key) == id then redis.call('ZREM', dedup, key) end
end
redis.call('HDEL', messages, unpack(found))
for _, id in ipairs(found) do free(keys, id) end
redis.call('ZREM', scheduled, unpack(found))
return { missing, left }
