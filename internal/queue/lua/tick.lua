-- tick.lua: store the next ticks of a schedule ahead, each once.
--
-- One record has the ticks that are stored ahead, the revision of the schedule that they are of, and a cursor: how far
-- the caller has computed ticks. A caller with an older cursor or revision stores nothing, so a repeated call does no
-- harm. A newer revision also removes the ticks of the older one that are not due yet.
--
-- KEYS     scheduled, messages, ticks
-- ARGV[1]  schedule
-- ARGV[2]  revision  when it was defined, µs; 0 only reads the record
-- ARGV[3]  seen      the last cursor that the caller has seen; '' if it was of another revision, since two revisions may
--                    have the same cursor
-- ARGV[4]  cursor    the new one; REMOVE: remove the record, because no caller will store ticks of the schedule any more
-- ARGV[5]  channel   where subscribers listen for notifications
-- ARGV[6..]  of each tick: nominal time, ms; due, ms; id; body
-- Returns  { what, now in ms, record }. what is 'stored'; 'seen' if the record has another cursor; 'superseded' if it has a newer
--          revision; 'lost' if there is no record though the revision is old; 'unchanged' if revision is 0. record is the
--          current one or, for 'unchanged', as it would be written now

local schedule, revision, cursor = ARGV[1], tonumber(ARGV[2]), ARGV[4]
local NEW_US = 12 * 3600 * 1000000 -- an older revision creates no record

local function record_of(revision, cursor, fired, ahead)
  local record = int(revision) .. ' ' .. cursor .. ' ' .. int(fired)
  if #ahead > 0 then record = record .. ' ' .. table.concat(ahead, ' ') end
  return record
end

local now, now_ms = now_us()
local record = redis.call('HGET', ticks, schedule)
local of, last, fired, rest = string.match(record or '', '^(%d+) (%S+) (%d+) ?(.*)$')
if revision == 0 and not of then return { 'unchanged', now_ms, record or '' } end
of, fired = tonumber(of) or 0, math.min(tonumber(fired) or 0, tonumber(now_ms)) -- later only if the clock was ahead

-- ahead has the stored ticks that are not due, by their scores: they may have been rescheduled.
local ahead, pending, ids, nominals = {}, {}, {}, {}
for nominal, id in string.gmatch(rest or '', '(%d+) (%S+)') do
  ids[#ids + 1], nominals[#ids + 1] = id, nominal
end
local before = #ids > 0 and redis.call('ZMSCORE', scheduled, unpack(ids)) or {}
for i, id in ipairs(ids) do
  local due, nominal = tonumber(before[i] or nil), tonumber(nominals[i])
  if due and due > tonumber(now_ms) then
    ahead[#ahead + 1], pending[#pending + 1] = nominals[i] .. ' ' .. id, id
  elseif nominal <= tonumber(now_ms) then -- else it was cancelled, or rescheduled to an earlier time
    fired = math.max(fired, nominal)
  end
end
if revision == 0 then return { 'unchanged', now_ms, record_of(of, last, fired, ahead) } end

if of > revision then return { 'superseded', now_ms, record } end
if of == revision and last ~= ARGV[3] then return { 'seen', now_ms, record } end
if cursor == 'REMOVE' then
  redis.call('HDEL', ticks, schedule)
  return { 'stored', now_ms, '' }
end
-- A process that was suspended for long must not bring back a schedule that was removed.
if of == 0 and now - revision > NEW_US then return { 'lost', now_ms, '' } end

-- old has the ticks that a newer revision removes, and kept the ticks that stay.
redis.call('HLEN', messages)
local kept, old = ahead, {}
if of < revision then kept, old = {}, pending end

local dues, bodies, stored, gone, first, n = {}, {}, {}, {}, nil, 0
for i = 6, #ARGV, 4 do
  if tonumber(ARGV[i]) > fired then
    local due, id = math.max(tonumber(ARGV[i + 1]), tonumber(now_ms)), ARGV[i + 2]
    if not first or due < first then first = due end
    dues[n + 1], dues[n + 2] = int(due), id
    bodies[n + 1], bodies[n + 2] = id, ARGV[i + 3]
    n = n + 2
    kept[#kept + 1], stored[id] = ARGV[i] .. ' ' .. id, true
  end
end
for _, id in ipairs(old) do
  if not stored[id] then gone[#gone + 1] = id end
end

-- Add before removing, and write the record after the ticks. The id of a tick consists of its schedule, revision
-- and time, so storing a tick again after a torn file changes nothing.
local earliest = head(scheduled)
begin_writes(scheduled)
if n > 0 then
  redis.call('HSET', messages, unpack(bodies))
  redis.call('ZADD', scheduled, unpack(dues))
end
record = record_of(revision, cursor, fired, kept)
redis.call('HSET', ticks, schedule, record)
if #gone > 0 then
  redis.call('ZREM', scheduled, unpack(gone))
  redis.call('HDEL', messages, unpack(gone))
end
if first and (not earliest or first < earliest) then wake(ARGV[5], now, first) end
return { 'stored', now_ms, record }
