-- find_imported.lua: read which messages the partition has or remembers; see import.lua. It changes nothing.
--
-- KEYS     messages, imported
-- ARGV[1..]  ids
-- Returns  { id, ... }: the known messages

local ids, ulids = { unpack(ARGV) }, {}
for i, id in ipairs(ids) do ulids[i] = string.sub(id, 1, 26) end
local remembered = redis.call('ZMSCORE', imported, unpack(ulids))

local known = {}
for i, id in ipairs(ids) do
  if remembered[i] or redis.call('HEXISTS', messages, id) == 1 then known[#known + 1] = id end
end
return known
