-- release.lua: take back messages that no handler has seen. They keep their due
-- time and the delivery does not count, but their fence has grown.
--
-- KEYS[1]  unack     zset  id -> lease deadline, ms
-- KEYS[2]  attempts  hash  id -> fence/seen/unsure
-- KEYS[3]  queue     zset  id -> due, ms
-- KEYS[4]  full      hash  group that waits for room in unack -> how many are too many
-- KEYS[5]  control   hash  what groups are told: see lib_groups.lua
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for notifications
-- ARGV[3..]  for each message: id, token, due, age
--            due in ms; age is for how many ms the consumer has had it, at least
-- Returns  { id, ... }: those whose delivery is no longer the current one

local unack, attempts, queue, full, control = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local group, channel = ARGV[1], ARGV[2]

local ids, tokens, due, age = columns(3, 4)
local holds = current(unack, attempts, ids, tokens)
expect_zsets(queue)
expect_hashes(full)
local now = now_us()
local interval = interval_of(control, group)

-- What was claimed just now has used up the group's rate for nothing. The longer ago that was,
-- the more of it would be lost by now even without that claim.
local dues, left, given, stale, unused = {}, {}, {}, {}, 0
for i, id in ipairs(ids) do
  if holds[i] then
    dues[#dues + 1] = due[i]
    dues[#dues + 1] = id
    left[#left + 1] = id
    left[#left + 1] = unseen(tokens[i])
    given[#given + 1] = id
    unused = unused + math.max(0, interval - age[i] * 1000)
  else
    stale[#stale + 1] = id
  end
end

if #given > 0 then
  begin_writes(unack)
  redis.call('HSET', attempts, unpack(left))
  redis.call('ZADD', queue, unpack(dues))
  redis.call('ZREM', unack, unpack(given))
  redis.call('HDEL', full, group)
  give_back(control, group, unused)
  wake(channel, now, 0, group)
end
return stale
