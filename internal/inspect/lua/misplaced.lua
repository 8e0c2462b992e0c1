-- misplaced.lua: find messages of one place that have no body, or that are in a second place as
-- well. Each pair of places is compared from one of them. It changes nothing.
--
-- KEYS     messages, scheduled, queue, unack, dead
-- ARGV[1]  place      scheduled, queue, unack or dead
-- ARGV[2]  cursor     0 to begin
-- ARGV[3]  count      about how many to read
-- Returns  { cursor, number of ids read, number of ids without a body, these ids ..., then id and
--            place of each message that is in a second place }: cursor continues from here; 0 after
--          the last

local place, cursor, count = ARGV[1], ARGV[2], ARGV[3]
local call = redis.call

local sets = { scheduled = scheduled, queue = queue, unack = unack, dead = dead }
local others = { scheduled = {}, queue = { 'scheduled', 'unack', 'dead' }, unack = { 'scheduled', 'dead' }, dead = { 'scheduled' } }

local found, ids = call('ZSCAN', sets[place], cursor, 'COUNT', count), {}
for i = 1, #found[2], 2 do ids[#ids + 1] = found[2][i] end
local result = { found[1], #ids, 0 }
if #ids == 0 then return result end

for _, id in ipairs(ids) do
  if call('HEXISTS', messages, id) == 0 then result[#result + 1] = id end
end
result[3] = #result - 3

for _, other in ipairs(others[place]) do
  for i, score in ipairs(call('ZMSCORE', sets[other], unpack(ids))) do
    if score then
      result[#result + 1] = ids[i]
      result[#result + 1] = other
    end
  end
end
return result
