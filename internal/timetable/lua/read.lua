-- read.lua: read definitions of schedules, by their names or page by page.
--
-- KEYS     schedules, upcoming
-- ARGV[1]  cursor  of HSCAN; '' to read only named schedules
-- ARGV[2..]  named schedules
-- Returns  { now, cursor, schedule, upcoming, definition, ... }: the cursor is '0' after the last page; missing schedules
--          are left out; upcoming is when to take the schedule next, in ms, '' if it is lost

local _, now_ms = now_us()
local PAGE = 500
local reply, ids = { now_ms, '0' }, { unpack(ARGV, 2) }
redis.call('ZCARD', upcoming)
if ARGV[1] ~= '' then
  local page = redis.call('HSCAN', schedules, ARGV[1], 'COUNT', PAGE)
  reply[2] = page[1]
  for i = 1, #page[2], 2 do ids[#ids + 1] = page[2][i] end
end
for _, id in ipairs(ids) do
  local definition = redis.call('HGET', schedules, id)
  if definition then
    local n, score = #reply, redis.call('ZSCORE', upcoming, id)
    reply[n + 1], reply[n + 2], reply[n + 3] = id, score and int(tonumber(score)) or '', definition
  end
end
return reply
