-- leftovers.lua: find, and drop if asked to, entries that no message needs: those of refs whose
-- message has no body; those of attempts, reasons or nack_metadata whose message is in no set of
-- the group. It also finds refs that cannot be read, and keeps them.
--
-- KEYS     messages, refs, queue, unack, dead, attempts, reasons, nack_metadata
-- ARGV[1]  which     refs, attempts, reasons or nack_metadata
-- ARGV[2]  how       'drop', or 'list' to change nothing
-- ARGV[3]  cursor    0 to begin
-- ARGV[4]  count     about how many to read, if they are small
-- Returns  { cursor, number of entries read, number of entries left over, their ids ..., then the ids
--            whose refs cannot be read }: cursor continues from here;
--          0 after the last

local which, how, cursor, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local call = redis.call
local MAX_BYTES = 262144 -- of entries that one call copies

local hash = ({ refs = refs, attempts = attempts, reasons = reasons, nack_metadata = nack_metadata })[which]

-- HSCAN copies the values, too, so a sample of their sizes decides how many to read.
local sample, size = call('HRANDFIELD', hash, 10), 0
for _, id in ipairs(sample) do size = size + call('HSTRLEN', hash, id) end
if size > 0 then count = math.max(1, math.min(count, math.floor(MAX_BYTES * #sample / size))) end

local found, ids, needed = call('HSCAN', hash, cursor, 'COUNT', int(count)), {}, {}
for i = 1, #found[2], 2 do ids[#ids + 1] = found[2][i] end
local result, gone = { found[1], #ids, 0 }, {}
if #ids == 0 then return result end

for i, id in ipairs(ids) do
  needed[i] = which == 'refs' and call('HEXISTS', messages, id) == 1
end
for _, zset in ipairs(which == 'refs' and {} or { queue, unack, dead }) do
  for i, score in ipairs(call('ZMSCORE', zset, unpack(ids))) do
    if score then needed[i] = true end
  end
end

-- readable reports whether an entry of refs is a list of names.
local function readable(list)
  local ok, names = pcall(cjson.decode, list)
  if not ok or type(names) ~= 'table' or #names == 0 then return false end
  for _, name in ipairs(names) do
    if type(name) ~= 'string' then return false end
  end
  return true
end

for i, id in ipairs(ids) do
  if not needed[i] then gone[#gone + 1] = id end
end
for i, id in ipairs(gone) do result[3 + i] = id end
result[3] = #gone
for i, id in ipairs(ids) do
  if which == 'refs' and needed[i] and not readable(found[2][2 * i]) then result[#result + 1] = id end
end
if how == 'drop' and #gone > 0 then call('HDEL', hash, unpack(gone)) end
return result
