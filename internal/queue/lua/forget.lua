-- forget.lua: free some of what a retired group still holds. The last group that needs
-- a message removes it, as in an ack. The tombstone of a group that has ended by itself goes
-- with the last call.
--
-- KEYS     control, queue, unack, dead, attempts, reasons, changed, claims, consumers, messages,
--          refs, keys, full, expiry, turns, lanes
-- ARGV[1]   group
-- ARGV[2]   limit      integer, 1..1000
-- ARGV[3]   bytes      of bodies to remove at most, unless the first has more
-- Returns   { 'more', freed }, { 'done', 0 } if nothing is left, or { 'not retired', 0 }

local group, limit, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local state = tombstone(control, group)
if not state then return { 'not retired', 0 } end
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
  redis.call('UNLINK', attempts, reasons, changed, claims, consumers, turns, lanes)
  redis.call('HDEL', full, group)
  redis.call('HDEL', control, pause_of(group), limits_of(group), rate_of(group))
  if state == 'expired' then redis.call('HDEL', control, 'retired:' .. group) end
  drop_expiry(control, expiry, group)
  return { 'done', 0 }
end

begin_writes(from)
finish(messages, refs, changed, keys, ids, group)
redis.call('ZREM', from, unpack(ids))
redis.call('HDEL', attempts, unpack(ids))
redis.call('HDEL', reasons, unpack(ids))
return { 'more', #ids }
