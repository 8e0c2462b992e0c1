-- put.lua: store a batch of messages without keys as push.lua does, in half the time, if the last
-- batch of the publisher is an earlier one of the same hour, and no write fails. Otherwise, the
-- caller sends the batch to push.lua under the same number. It uses no library, because creating
-- the library's functions takes as long as this script.
--
-- KEYS     scheduled, messages, publishers
-- ARGV[1]  publisher   string
-- ARGV[2]  batch       integer, higher than in any earlier batch
-- ARGV[3]  channel     where subscribers listen for notifications
-- ARGV[4]  count       of messages, 1..1000
-- ARGV[5..]  the id and the body of each message; then for each run of messages with the same delay
--          their number and the delay in ms, or due time as in push.lua
-- Returns  { 'stored' }, or { 'push' } if nothing is changed and push.lua has to store the batch

local publisher, batch, channel, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local at, delays = 5, 5 + 2 * count
local HOUR_MS = 3600000

local last = redis.call('HGET', publishers, publisher)
local number, last_ms = string.match(last or '', '^(%d+) (%d+) ')
if not number or tonumber(number) >= tonumber(batch) then return { 'push' } end
local time = redis.call('TIME')
local seconds, us = time[1], tonumber(time[2])
local now_ms = seconds .. string.format('%03d', math.floor(us / 1000))
if math.floor(last_ms / HOUR_MS) ~= math.floor(now_ms / HOUR_MS) then return { 'push' } end

-- A message without a delay is due in the current millisecond, others are never early.
local now_up, first, dues, n = seconds * 1000 + math.ceil(us / 1000), nil, {}, 0
for i = delays, #ARGV, 2 do
  local delay = tonumber(ARGV[i + 1])
  local due = delay and delay > 0 and now_up + delay or tonumber(now_ms)
  if not delay then due = math.max(tonumber(string.sub(ARGV[i + 1], 2)), due) end
  if not first or due < first then first = due end
  local score, stop = string.format('%.0f', due), at + 2 * ARGV[i]
  while at < stop do
    dues[n + 1], dues[n + 2] = score, ARGV[at]
    n, at = n + 2, at + 2
  end
end

-- The record is written last, and begins with the first id. So if a call is interrupted, push.lua
-- stores the batch again or finds it stored, as after a call of its own.
local function refused(reply) return type(reply) == 'table' and reply.err end
local head = redis.pcall('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
if refused(head) then return { 'push' } end
-- If this call has stored nothing, it removes nothing: an interrupted call may have stored messages
-- before, and a consumer may hold them.
if refused(redis.pcall('HSET', messages, unpack(ARGV, 5, delays - 1))) then return { 'push' } end
if refused(redis.pcall('ZADD', scheduled, unpack(dues)))
  or refused(redis.pcall('HSET', publishers, publisher, batch .. ' ' .. now_ms .. ' ' .. string.sub(dues[2], 1, 26)))
then
  local ids = {}
  for i = 2, n, 2 do ids[i / 2] = dues[i] end
  redis.pcall('ZREM', scheduled, unpack(ids))
  redis.pcall('HDEL', messages, unpack(ids))
  return { 'push' }
end
if not head[2] or first < tonumber(head[2]) then
  redis.pcall(NOTIFY, channel, string.format('%.0f', math.max(0, (first - seconds * 1000) * 1000 - us)))
end
return { 'stored' }
