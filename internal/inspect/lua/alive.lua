-- alive.lua: read some of a group's consumers that are alive, or of all that it remembers. It
-- changes nothing.
--
-- KEYS     consumers
-- ARGV[1]  cursor     '0', or where the call before has ended
-- ARGV[2]  which      'alive' or 'all'
-- Returns  { now in ms, cursor or '0' if that was all, { consumer, '<until> <seen> <since>
--          <about>', ... }, perhaps some of them twice }

local STEP = 100 -- consumers, about; each says up to some KiB

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
