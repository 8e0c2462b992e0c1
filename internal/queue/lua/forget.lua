-- forget.lua: free some messages of a retired group. As with an ack, the last group that needs a
-- message removes it. The last call also removes the tombstone of a group that has expired.
--
-- KEYS     settings, queue, unack, dead, attempts, reasons, nack_metadata, claims, consumers, messages,
--          refs, keys, at_limit, expiry, turns, blocked
-- ARGV[1]   group
-- ARGV[2]   limit      integer, 1..1000
-- ARGV[3]   bytes      of bodies to remove at most, unless the first has more
-- Returns   { 'more', freed }, { 'done', 0 } if nothing is left, or { 'not retired', 0 }

local group, limit, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local state = tombstone(settings, group)
if not state then return { 'not retired', 0 } end
expect_hashes(attempts, reasons, nack_metadata, messages, refs, keys, at_limit)
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
  redis.call('UNLINK', attempts, reasons, nack_metadata, claims, consumers, turns, blocked)
  redis.call('HDEL', at_limit, group)
  redis.call('HDEL', settings, pause_of(group), limits_of(group), rate_of(group))
  if state == 'expired' then redis.call('HDEL', settings, 'retired:' .. group) end
  drop_expiry(settings, expiry, group)
  return { 'done', 0 }
end

begin_writes(from)
finish(messages, refs, nack_metadata, keys, ids, group)
redis.call('ZREM', from, unpack(ids))
redis.call('HDEL', attempts, unpack(ids))
redis.call('HDEL', reasons, unpack(ids))
return { 'more', #ids }
