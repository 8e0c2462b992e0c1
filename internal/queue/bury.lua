-- bury.lua: make messages dead letters of the group, since their current
-- deliveries show that they can never be handled.
--
-- KEYS[1]  unack     zset  id -> lease deadline, ms
-- KEYS[2]  attempts  hash  id -> fence/seen/unsure
-- KEYS[3]  dead      zset  id -> when buried, ms
-- KEYS[4]  reasons   hash  id -> why buried
-- KEYS[5]  keys      hash  message key -> id
-- KEYS[6]  full      hash  group that waits for room in unack -> how many are too many
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for notifications
-- ARGV[3..]  for each message: id, token, reason
-- Returns  { id, ... }: those whose delivery is no longer the current one, unless it
--          is what this delivery was buried for

local unack, attempts, dead = KEYS[1], KEYS[2], KEYS[3]
local reasons, keys, full = KEYS[4], KEYS[5], KEYS[6]
local group, channel = ARGV[1], ARGV[2]

local ids, tokens, why = columns(3, 3)
local holds, entries = current(unack, attempts, ids, tokens)
expect_zsets(dead)
expect_hashes(reasons, keys, full)
local now = now_us()

begin_writes(unack)
local stale = {}
for i, id in ipairs(ids) do
  if holds[i] then
    bury(dead, reasons, keys, id, now, why[i])
    redis.call('ZREM', unack, id)
  elseif why_dead(dead, reasons, id) ~= why[i] or not same_fence(entries[i], tokens[i]) then
    stale[#stale + 1] = id
  end
end
make_room(full, unack, channel, group)
return stale
