-- expire.lua: end a group that has had no live consumer for its lifetime. Like retire.lua, it
-- removes the group and leaves a tombstone, which is removed when forget.lua has freed all. The
-- group gets notice some seconds before it ends, which wakes its consumers, and ends only if no
-- consumer reports until then: while Redis was down, or if its clock was set forward, live
-- consumers could not report. Redis may also have been down since the notice, so a check that comes
-- late gives a second notice, and moves the end. There is no third one: checks may always be rare.
--
-- KEYS     groups, settings, consumers, expiry
-- ARGV[1]  group
-- ARGV[2]  how      'end', or 'notice' if it must not end yet: partition 0 ends a group last, so that
--                   its entry in expiry makes some process continue until all partitions have
-- ARGV[3]  channel  where subscribers listen for notifications
-- Returns  { 'alive' } if it does not end soon, { 'noticed' } if it may, { 'expired' } if it
--          has ended, { 'gone' } if there is no such group or it does not expire, or
--          { 'more' } if it has to be called again: some old consumers were removed

local group, how, channel = ARGV[1], ARGV[2], ARGV[3]
local now, now_text = now_us()
local now_ms = tonumber(now_text)
local LATE_MS = 15000 -- after a notice; usual checks come sooner
local MAX_CONSUMERS = 200 -- consumers that one call reads; each entry has up to some KiB

local state = tombstone(settings, group)
local lasts, ends, noticed = expiry_of(settings, group)
expect_zsets(expiry)
if state == 'expired' then return { 'expired' } end
if state or not lasts or unknown(groups, group) then
  drop_expiry(settings, expiry, group)
  return { 'gone' }
end

-- A consumer in the hash was alive when it was last seen, and so was its group. It reports again before it no
-- longer counts as alive.
local latest, old, slow = ends, {}, lasts > NOTICE_MS
local some = redis.call('HRANDFIELD', consumers, MAX_CONSUMERS, 'WITHVALUES')
for i = 1, #some, 2 do
  local till, seen = string.match(some[i + 1], '^(%d+) (%d+)')
  local lives = till and math.max(till, seen + lasts) or 0
  latest = math.max(latest, lives)
  if till and till - seen > NOTICE_MS then slow = true end
  if lives <= now_ms then old[#old + 1] = some[i] end
end
if latest > ends then noticed = 0 end
begin_writes(expiry)
if latest > now_ms + SOON_MS then
  write_expiry(settings, expiry, group, now_ms, lasts, latest, 0)
  return { 'alive' }
end
if #old > 0 and #old == MAX_CONSUMERS then
  redis.call('HDEL', consumers, unpack(old))
  return { 'more' }
end
local fresh = noticed == 0 or noticed > now_ms
if not fresh and now_ms > noticed + LATE_MS and latest < noticed + SOON_MS then -- the second notice moves the end to this time
  fresh, latest = true, now_ms + SOON_MS
end
if fresh or now_ms < math.max(latest, noticed + NOTICE_MS) then
  if fresh then noticed = now_ms end
  write_expiry(settings, expiry, group, now_ms, lasts, latest, noticed)
  if fresh and slow then wake(channel, now, 0, group) end -- other consumers report in time without it
  return { 'noticed' }
end

if how ~= 'end' then return { 'noticed' } end

-- The group stays in expiry so that the next process that checks can continue. The removal of nothing
-- fails first if the user has no right to remove.
redis.call('SREM', groups, '')
redis.call('HSET', settings, 'retired:' .. group, now_text .. ' expired')
redis.call('SREM', groups, group)
return { 'expired' }
