-- cancel_scheduled.lua: remove messages from scheduled, up to a limit of bytes. As in cancel.lua, their keys
-- become free and their windows end. A message stays if its due time is not the one that the caller has
-- seen.
--
-- KEYS     scheduled, messages, keys, dedup
-- ARGV[1]  bytes  of bodies to remove at most, unless the first has more
-- ARGV[2..]  for each message: id, score
-- Returns  { { id, ... }, { id, ... } }: messages that stay, and messages beyond the limit, to send again

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

-- The id is removed from scheduled after its body and key. So no key is held for ever, and a
-- repeated call finds what a torn file has left half done.
begin_writes(scheduled)
for _, id in ipairs(found) do
  local key = key_of(id)
  if key and redis.call('HGET', keys, key) == id then redis.call('ZREM', dedup, key) end
end
redis.call('HDEL', messages, unpack(found))
for _, id in ipairs(found) do free(keys, id) end
redis.call('ZREM', scheduled, unpack(found))
return { missing, left }
