-- find.lua: find messages whose body contains a text, or whose id, with or without its keys, is the
-- text. It changes nothing.
--
-- KEYS     messages
-- ARGV[1]  text      '' for all
-- ARGV[2]  cursor    0 to begin
-- ARGV[3]  count     about how many to read
-- Returns  { cursor, number of messages read, bytes of their bodies, id, body, ... }: cursor continues
--          from here; 0 after the last

local text, cursor, count = ARGV[1], ARGV[2], ARGV[3]

local found = redis.call('HSCAN', messages, cursor, 'COUNT', count)
local result, bytes = { found[1], #found[2] / 2, 0 }, 0
for i = 1, #found[2], 2 do
  local id, body = found[2][i], found[2][i + 1]
  bytes = bytes + #body
  local begins = string.sub(id, 1, #text) == text and string.find(string.sub(id, #text + 1, #text + 1), '^[~=:]?$')
  if begins or string.find(body, text, 1, true) then
    result[#result + 1], result[#result + 2] = id, body
  end
end
result[3] = bytes
return result
