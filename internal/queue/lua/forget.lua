-- forget.lua: free some of what a retired group still holds. The last group that needs
-- a message removes it, as in an ack. The tombstone of a group that has ended by itself goes
-- with the last call.
--
-- KEYS[1]   control    hash  what groups are told: see lib_groups.lua
-- KEYS[2]   queue      zset  id -> due, ms: waiting for the group
-- KEYS[3]   unack      zset  id -> lease deadline, ms
-- KEYS[4]   dead       zset  id -> when buried, ms
-- KEYS[5]   attempts   hash  id -> fence/seen/unsure
-- KEYS[6]   reasons    hash  id -> why buried
-- KEYS[7]   changed    hash  id -> metadata as a middleware of this group left them
-- KEYS[8]   claims     hash  consumer -> record of its last claim
-- KEYS[9]   consumers  hash  consumer -> until when it counts as alive, and more about it
-- KEYS[10]  messages   hash  id -> encoded message
-- KEYS[11]  refs       hash  id -> names of the groups still to finish
-- KEYS[12]  keys       hash  message key -> id
-- KEYS[13]  full       hash  group at its limit -> how many messages it may hold in unack
-- KEYS[14]  expiry     zset  group -> when to look whether it has expired, ms
-- ARGV[1]   group
-- ARGV[2]   limit      integer, 1..1000
-- ARGV[3]   bytes      of bodies to remove at most, unless the first has more
-- Returns   { 'more', freed }, { 'done', 0 } if nothing is left, or { 'not retired', 0 }

local control, queue, unack, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local attempts, reasons, changed, claims = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local consumers, messages, refs, keys = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local full, expiry = KEYS[13], KEYS[14]
local group, limit, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local told = tombstone(control, group)
if not told then return { 'not retired', 0 } end
expect_hashes(attempts, reasons, changed, messages, refs, keys, full)
expect_zsets(expiry)

local ids, from, size = {}, nil, 0
for _, zset in ipairs({ queue, unack, dead }) do
  for _, id in ipairs(#ids == 0 and redis.call('ZRANGE', zset, 0, limit - 1) or {}) do
    size = size + redis.call('HSTRLEN', messages, id)
    if #ids > 0 and size > bytes then break end
    ids[#ids + 1], from = id, zset
  end
end
if #ids == 0 then
  redis.call('UNLINK', attempts, reasons, changed, claims, consumers)
  redis.call('HDEL', full, group)
  redis.call('HDEL', control, pause_of(group), limits_of(group), rate_of(group))
  if told == 'expired' then redis.call('HDEL', control, 'retired:' .. group) end
  drop_expiry(control, expiry, group)
  return { 'done', 0 }
end

begin_writes(from)
local ended = finish(messages, refs, changed, keys, ids, group)
redis.call('ZREM', from, unpack(ids, 1, ended))
redis.call('HDEL', attempts, unpack(ids, 1, ended))
redis.call('HDEL', reasons, unpack(ids, 1, ended))
return { 'more', ended }
