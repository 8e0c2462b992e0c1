-- known.lua: read which messages the partition has, or has had, as arrive.lua sees it. It changes nothing.
--
-- KEYS     messages, arrived
-- ARGV[1]  move     names the move; '' for copies
-- ARGV[2..]  ids
-- Returns  { id, ... }: those that are known

local move, ids = ARGV[1], columns(2, 1)
local names, own = {}, {} -- as arrived has them
for i, id in ipairs(ids) do
  local ulid = string.sub(id, 1, 26)
  names[i] = move ~= '' and ulid .. '/' or ulid
  own[i] = move ~= '' and names[i] .. move or ulid
end
local here = redis.call('ZMSCORE', arrived, unpack(names))
local remembered = redis.call('ZMSCORE', arrived, unpack(own))

local known = {}
for i, id in ipairs(ids) do
  if here[i] and remembered[i] or redis.call('HEXISTS', messages, id) == 1 then known[#known + 1] = id end
end
return known
