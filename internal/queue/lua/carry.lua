-- carry.lua: read messages that a batch moves, as many as their size allows.
--
-- KEYS[1]  moving     hash  id -> where it was, and where it is moved to
-- KEYS[2]  messages   hash  id -> encoded message
-- KEYS[3]  changed    hash  id -> metadata as a middleware of this group left them
-- KEYS[4]  scheduled  zset  id -> due, ms: not given to the groups yet
-- KEYS[5]  queue      zset  id -> due, ms: waiting for the group
-- KEYS[6]  dead       zset  id -> when buried, ms
-- ARGV[1]  batch
-- ARGV[2]  bytes      of text to return at most, unless the first has more
-- ARGV[3..]  ids
-- Returns  { { id, entry, body, metadata, 'here' or '', ... }, { id, ... } }: those that the
--          batch moves, and whether they are also where they were, as after a torn
--          append-only file; false for what is missing; then the ids to ask for next

local moving, messages, changed = KEYS[1], KEYS[2], KEYS[3]
local scheduled, queue, dead = KEYS[4], KEYS[5], KEYS[6]
local batch, bytes, ids = ARGV[1], tonumber(ARGV[2]), { unpack(ARGV, 3) }
local sets, call = { scheduled = scheduled, queue = queue, dead = dead }, redis.call

local rows, left, size = {}, {}, 0
for i, id in ipairs(ids) do
  local entry = call('HGET', moving, id)
  local move = move_of(entry)
  if move and move.batch == batch then
    size = size + call('HSTRLEN', messages, id) + call('HSTRLEN', changed, id)
    if #rows > 0 and size > bytes then
      left = { unpack(ids, i) }
      break
    end
    local n, set = #rows, sets[move.place]
    rows[n + 1], rows[n + 2] = id, entry
    rows[n + 3], rows[n + 4] = call('HGET', messages, id), call('HGET', changed, id)
    rows[n + 5] = set and call('ZSCORE', set, id) and 'here' or ''
  end
end
return { rows, left }
