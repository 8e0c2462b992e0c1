-- strays.lua: find, and drop if asked to, message keys that lead to no body. Such keys are free.
--
-- KEYS     keys, messages
-- ARGV[1]  how       'drop', or 'list' to change nothing
-- ARGV[2]  cursor    0 to begin
-- ARGV[3]  count     about how many to read
-- Returns  { cursor, number of keys read, key, ... }: cursor continues from here; 0
--          after the last

local how, cursor, count = ARGV[1], ARGV[2], ARGV[3]

local found = redis.call('HSCAN', keys, cursor, 'COUNT', count)
local result, strays = { found[1], #found[2] / 2 }, {}
for i = 1, #found[2], 2 do
  local key, id = found[2][i], found[2][i + 1]
  if string.sub(id, 1, 1) == DEAD_MARK then id = string.sub(id, 2) end
  if redis.call('HEXISTS', messages, id) == 0 then
    strays[#strays + 1] = key
    result[#result + 1] = key
  end
end
if how == 'drop' and #strays > 0 then redis.call('HDEL', keys, unpack(strays)) end
return result
