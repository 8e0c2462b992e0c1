-- moving.lua: read some of the messages that are moved to other topics, or take over those
-- that nobody has gone on with for a while: calls of the batch that they had are void then.
--
-- KEYS[1]  moving  hash  id -> where it was, and where it is moved to
-- ARGV[1]  cursor  0 to begin
-- ARGV[2]  count   about how many
-- ARGV[3]  batch   that takes them over, unique to one call; '' to change nothing
-- ARGV[4]  age     ms; only those that were taken out, or over, at least so long ago
-- ARGV[5]  most    ms; takes over only those that were taken out less long ago
-- Returns  { cursor, now in ms, { id, entry, ... } }: the cursor goes on from here; 0 after
--          the last

local moving = KEYS[1]
local cursor, count, batch, age, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local found = redis.call('HSCAN', moving, cursor, 'COUNT', count)
local _, now_ms = now_us()
local rows, adopted = {}, {}
for i = 1, #found[2], 2 do
  local id, entry = found[2][i], found[2][i + 1]
  local move = move_of(entry)
  local since = move and tonumber(move.since) or 0
  if not move then
    rows[#rows + 1], rows[#rows + 2] = id, entry
  elseif batch == '' then
    if since <= now_ms - age then rows[#rows + 1], rows[#rows + 2] = id, entry end
  elseif since > now_ms - most then
    local free = (tonumber(move.over) or since) <= now_ms - age
    if free and move.batch ~= batch then
      move.batch, move.over = batch, tonumber(now_ms)
      entry = cjson.encode(move)
      adopted[#adopted + 1], adopted[#adopted + 2] = id, entry
    end
    if move.batch == batch then rows[#rows + 1], rows[#rows + 2] = id, entry end
  end
end
if #adopted > 0 then
  redis.call('HDEL', moving, '') -- so that this works without memory, as begin_writes
  redis.call('HSET', moving, unpack(adopted))
end
return { found[1], now_ms, rows }
