-- set.lua: define or remove schedules, each only if its last revision is the one that the caller has seen.
--
-- KEYS     schedules, upcoming, versions
-- ARGV[1]  owner    of the declaration that the call is part of; '' for none
-- ARGV[2]  version  of the declaration
-- ARGV[3..]  of each: schedule; the revision that the caller has seen, 0 for none; the definition, '' to remove the schedule
-- Returns  { 'superseded' } if the owner has declared a newer version; else { 'set', now in ms, { revision, ... } }: the new
--          revisions, 0 if the caller has not seen the last one. Defined schedules are to be taken now

local owner, version = ARGV[1], ARGV[2]
expect_hashes(versions)
expect_zsets(upcoming)
if owner ~= '' then
  local newest = redis.call('HGET', versions, owner)
  if newest and tonumber(newest) > tonumber(version) then return { 'superseded' } end
  if newest ~= version then redis.call('HSET', versions, owner, version) end
end
local now, now_ms = now_us()
local revisions = {}
for i = 3, #ARGV, 3 do
  local id, seen, definition = unpack(ARGV, i, i + 2)
  local last = string.match(redis.call('HGET', schedules, id) or '', '^(%d+) ') or '0' -- a damaged definition may be replaced
  local revision = '0'
  if last == seen then
    revision = int(math.max(now, tonumber(last) + 1))
    if definition == '' then
      redis.call('HDEL', schedules, id)
      redis.call('ZREM', upcoming, id)
    else
      redis.call('HSET', schedules, id, revision .. ' ' .. definition)
      redis.call('ZADD', upcoming, now_ms, id)
    end
  end
  revisions[#revisions + 1] = revision
end
return { 'set', now_ms, revisions }
