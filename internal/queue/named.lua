-- named.lua: list the groups that still need messages, registered or not: a step through
-- refs.
--
-- KEYS[1]  refs    hash  id -> names of the groups still to finish
-- ARGV[1]  cursor  of the last call; 0 for the first
-- Returns  { cursor, name, ... }: cursor 0 after the last step

local refs, cursor = KEYS[1], ARGV[1]
local COUNT = 50 -- lists of up to 1,000 groups

local step = redis.call('HSCAN', refs, cursor, 'COUNT', COUNT)
local names, known, read = { step[1] }, {}, {}
for i = 2, #step[2], 2 do
  local list = step[2][i]
  local whole, some = true, {}
  if not read[list] then whole, some = pcall(cjson.decode, list) end
  read[list] = true
  for _, name in ipairs(whole and type(some) == 'table' and some or {}) do
    if not known[name] then
      known[name] = true
      names[#names + 1] = name
    end
  end
end
return names
