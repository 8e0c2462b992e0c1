-- moving.lua: read some of the messages that are moved to other topics.
--
-- KEYS[1]  moving  hash  id -> where it was, and where it is moved to
-- ARGV[1]  cursor  0 to begin
-- ARGV[2]  count   about how many
-- Returns  { cursor, now in ms, { id, entry, ... } }: the cursor goes on from here; 0 after
--          the last

local moving = KEYS[1]
local cursor, count = ARGV[1], ARGV[2]

local found = redis.call('HSCAN', moving, cursor, 'COUNT', count)
local _, now_ms = now_us()
return { found[1], now_ms, found[2] }
