-- reschedule_waiting.lua: change the due time of messages that wait in scheduled or in the queue of a group. A
-- message is skipped if its due time is not the one that the caller has seen, so a late copy of a
-- call changes nothing. A message that waits in line for its ordering key is due already, and keeps
-- its place unless it is postponed.
--
-- KEYS     scheduled, queue, turns, blocked
-- ARGV[1]  place      'scheduled' or 'queue'
-- ARGV[2]  due        ms; a time in the past counts as now
-- ARGV[3]  channel    where subscribers listen for notifications
-- ARGV[4..]  for each message: id, seen
-- Returns  { id, ... }: messages that do not wait there with the due time that was seen

local place, channel = ARGV[1], ARGV[3]
local zset = place == 'queue' and queue or scheduled

local ids, seen = columns(4, 2)
local order_keys, ordered = order_keys_of(ids, turns, blocked, queue)
local now, now_ms = now_us()
local due = int(math.max(tonumber(ARGV[2]), now_ms))
local ahead = tonumber(due) > tonumber(now_ms)
local first, left, moved = head(zset) or math.huge, {}, {}
for i, score in ipairs(redis.call('ZMSCORE', zset, unpack(ids))) do
  if not score or tonumber(score) ~= tonumber(seen[i]) then
    left[#left + 1] = ids[i]
    order_keys[i] = false
  elseif ahead or place ~= 'queue' or tonumber(score) < IN_LINE then
    moved[#moved + 1] = due
    moved[#moved + 1] = ids[i]
  end
end
if #moved == 0 then return left end

begin_writes(zset)
local passed = ordered > 0 and ahead and place == 'queue' and postpone(turns, blocked, queue, ids, order_keys, due)
redis.call('ZADD', zset, 'XX', unpack(moved))
if passed then wake(channel, 0, 0) end
if tonumber(due) < first then wake(channel, now, tonumber(due)) end
return left
