-- turns.lua: find ordering keys that dead messages halt, and turns whose messages are nowhere, as a torn
-- append-only file may leave them. It changes nothing: claims pass such turns on.
--
-- KEYS     turns, queue, unack, dead, settings
-- ARGV[1]  group
-- ARGV[2]  cursor  0 to begin
-- ARGV[3]  count   about how many turns to read
-- Returns  { cursor, number of turns read, { id of a dead message that halts its key, ... },
--          { id of a message that is nowhere, ... } }: cursor continues from here; 0 after the last

local group, cursor, count = ARGV[1], ARGV[2], ARGV[3]

local found, halted, gone, halts = redis.call('HSCAN', turns, cursor, 'COUNT', count), {}, {}, halts_keys(settings, group)
for i = 2, #found[2], 2 do
  local id = found[2][i]
  local waits = redis.call('ZSCORE', queue, id)
  if not redis.call('ZSCORE', unack, id) and not (waits and tonumber(waits) < IN_LINE) then
    local list = halts and redis.call('ZSCORE', dead, id) and halted or gone
    list[#list + 1] = id
  end
end
return { found[1], #found[2] / 2, halted, gone }
