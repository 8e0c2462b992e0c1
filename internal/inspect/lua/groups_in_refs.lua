-- groups_in_refs.lua: list groups that still need messages, registered or not, from a page of refs.
--
-- KEYS     refs
-- ARGV[1]  cursor  of the previous call; 0 for the first
-- Returns  { cursor, name, ... }: cursor 0 after the last page

local cursor = ARGV[1]
local COUNT, MAX_LISTS, MAX_BYTES = 20, 1000, 131072 -- lists have up to 1,000 names

local names, known, read, scanned, size = { cursor }, {}, {}, 0, 0
repeat
  local step = redis.call('HSCAN', refs, names[1], 'COUNT', COUNT)
  names[1] = step[1]
  for i = 2, #step[2], 2 do
    local list = step[2][i]
    scanned, size = scanned + 1, size + #list
    local ok, decoded
    if not read[list] then ok, decoded = pcall(cjson.decode, list) end
    read[list] = true
    for _, name in ipairs(ok and type(decoded) == 'table' and decoded or {}) do
      if not known[name] then
        known[name] = true
        names[#names + 1] = name
      end
    end
  end
until names[1] == '0' or scanned >= MAX_LISTS or size >= MAX_BYTES
return names
