-- read.lua: read definitions of schedules, page by page or by their names.
--
-- KEYS     schedules, upcoming, owned
-- ARGV[1]  how     'all', or 'owned', or 'named'
-- ARGV[2]  cursor  of HSCAN for all; for owned, the owner, and then the cursor of the page before
-- ARGV[3..]  the schedules that are named
-- Returns  { now, cursor, schedule, upcoming, definition, ... }: the cursor is '0' after the last page; a schedule that is not
--          there is left out

local _, now_ms = now_us()
local PAGE = 500
local reply, ids, cursor = { now_ms, '0' }, {}, '0'
redis.call('ZCARD', upcoming)
if ARGV[1] == 'all' then
  local page = redis.call('HSCAN', schedules, ARGV[2], 'COUNT', PAGE)
  cursor = page[1]
  for i = 1, #page[2], 2 do ids[#ids + 1] = page[2][i] end
elseif ARGV[1] == 'owned' then
  local owner = ARGV[2] .. '\0'
  local last = unpack(ARGV, 3)
  local from = last and '(' .. last or '[' .. owner
  local page = redis.call('ZRANGE', owned, from, '(' .. ARGV[2] .. '\1', 'BYLEX', 'LIMIT', 0, PAGE)
  for i, entry in ipairs(page) do ids[i] = string.sub(entry, #owner + 1) end
  if #page == PAGE then cursor = page[PAGE] end -- no schedule's name: that may be '0'
else
  for i = 3, #ARGV do ids[#ids + 1] = ARGV[i] end
end
reply[2] = cursor
for _, id in ipairs(ids) do
  local definition = redis.call('HGET', schedules, id)
  if definition then
    local n, score = #reply, redis.call('ZSCORE', upcoming, id)
    reply[n + 1], reply[n + 2], reply[n + 3] = id, score and int(tonumber(score)) or '', definition
  end
end
return reply
