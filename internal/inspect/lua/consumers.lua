-- consumers.lua: read a page of a group's consumers: those that are alive, or all that are recorded. It
-- changes nothing.
--
-- KEYS     consumers
-- ARGV[1]  cursor     '0', or that of the previous call
-- ARGV[2]  which      'alive' or 'all'
-- Returns  { now in ms, cursor or '0' after the last page, { consumer, '<until> <seen> <since>
--          <about>', ... } }; a consumer may be returned twice

local STEP = 100 -- consumers, about; each entry has up to some KiB

local _, now_ms = now_us()
local some = redis.call('HSCAN', consumers, ARGV[1], 'COUNT', STEP)
if ARGV[2] == 'all' then return { now_ms, some[1], some[2] } end
local alive = {}
for i = 1, #some[2], 2 do
  local till = tonumber(string.match(some[2][i + 1], '^%d+'))
  if till and till > tonumber(now_ms) then
    alive[#alive + 1] = some[2][i]
    alive[#alive + 1] = some[2][i + 1]
  end
end
return { now_ms, some[1], alive }
