-- letters.lua: read dead letters of a group, as many as their size allows.
--
-- KEYS[1]  dead      zset  id -> when buried, ms
-- KEYS[2]  reasons   hash  id -> why buried
-- KEYS[3]  messages  hash  id -> encoded message
-- KEYS[4]  changed   hash  id -> metadata as a middleware of this group left them
-- ARGV[1]  limit     integer, 1..1000
-- ARGV[2]  bytes     of text to return at most, unless the first has more
-- ARGV[3..]  ids; if none are given, those buried first
-- Returns  { { id, when buried, reason, body, metadata, ... }, { id, ... } }: the dead
--          letters, nil for what is missing; then the ids to ask for next

local dead, reasons, messages, changed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local limit, bytes, ids = tonumber(ARGV[1]), tonumber(ARGV[2]), { unpack(ARGV, 3) }
if #ids == 0 then ids = redis.call('ZRANGE', dead, 0, limit - 1) end

local letters, left, size = {}, {}, 0
for i, id in ipairs(ids) do
  local buried = redis.call('ZSCORE', dead, id)
  if buried then
    size = size + redis.call('HSTRLEN', messages, id) + redis.call('HSTRLEN', changed, id)
    if #letters > 0 and size > bytes then
      left = { unpack(ids, i) }
      break
    end
    local n = #letters
    letters[n + 1], letters[n + 2] = id, buried
    letters[n + 3] = redis.call('HGET', reasons, id)
    letters[n + 4] = redis.call('HGET', messages, id)
    letters[n + 5] = redis.call('HGET', changed, id)
  end
end
return { letters, left }
