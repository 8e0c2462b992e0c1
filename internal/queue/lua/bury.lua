-- bury.lua: make messages dead messages of the group, since their current
-- deliveries show that they can never be handled, or since an operator says so.
--
-- KEYS     unack, attempts, dead, reasons, keys, at_limit, queue, turns, blocked, settings
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for notifications
-- ARGV[3]  until     ms by Redis's clock; after that, no message without a receipt is buried
-- ARGV[4..]  for each message: id, receipt, reason
-- Returns  { id, ... }: those whose delivery is no longer the current one, or which, without
--          a receipt, neither wait nor are in delivery; unless the reason is what they were
--          buried for

local group, channel, till = ARGV[1], ARGV[2], tonumber(ARGV[3])

local ids, receipts, why = columns(4, 3)
local holds, entries, leases = current(unack, attempts, ids, receipts)
local waits = redis.call('ZMSCORE', queue, unpack(ids))
expect_zsets(dead)
expect_hashes(reasons, keys, at_limit)
local lines, ordered = lines_of(ids, turns, blocked, queue)
local halts, passed = ordered > 0 and halts_keys(settings, group), false
local now = now_us()
local in_time = now <= till * 1000

begin_writes(unack)
local stale = {}
for i, id in ipairs(ids) do
  local whoever = receipts[i] == '' -- an operator has no receipt: the message is buried wherever it is
  if holds[i] or whoever and in_time and (leases[i] or waits[i]) then
    bury(dead, reasons, keys, id, now, why[i])
    if lines[i] then
      leave_lines(blocked, queue, { id }, { lines[i] })
      if halts and redis.call('HEXISTS', turns, lines[i]) == 0 then -- an operator may bury a message before its turn
        redis.call('HSET', turns, lines[i], id)
      end
      if not halts then passed = pass_turns(turns, blocked, queue, { id }, { lines[i] }) or passed end
    end
    redis.call('ZREM', unack, id)
    if whoever then redis.call('ZREM', queue, id) end
  elseif why_dead(dead, reasons, id) ~= why[i] or not whoever and not same_token(entries[i], receipts[i]) then
    stale[#stale + 1] = id
  end
end
if passed then wake(channel, 0, 0, group) end
release_capacity(at_limit, unack, channel, group)
return stale
