-- holder.lua: find the consumer whose last claim returned a delivery, in a page of the records. It
-- changes nothing.
--
-- KEYS     claims
-- ARGV[1]  cursor  '0', or that of the previous call
-- ARGV[2]  id
-- ARGV[3]  token   of the delivery
-- Returns  { cursor or '0' after the last page, consumer or '' }

local cursor, id, token = ARGV[1], ARGV[2], ARGV[3]
local STEP = 10 -- records, about; one has up to 1,000 ids

-- has_delivery reports whether a record has the delivery.
local function has_delivery(record)
  if not string.find(record, cjson.encode(id), 1, true) then return false end
  local _, _, result = parse_record(record)
  local ok, decoded = pcall(cjson.decode, result)
  if not ok or type(decoded) ~= 'table' or type(decoded[3]) ~= 'table' then return false end
  local receipts = {}
  for _, receipt in string.gmatch(tostring(decoded[2]), '(%S+) (%S+)') do receipts[#receipts + 1] = receipt end
  for i, other in ipairs(decoded[3]) do
    if other == id then return (token_of(receipts[i] or '') or '1') == token end
  end
  return false
end

local some = redis.call('HSCAN', claims, cursor, 'COUNT', STEP)
for i = 1, #some[2], 2 do
  if has_delivery(some[2][i + 1]) then return { '0', some[2][i] } end
end
return { some[1], '' }
