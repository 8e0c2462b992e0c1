-- bury.lua: make messages dead messages of a group. A consumer sends the receipts of its current
-- deliveries. An operator has no receipts, and may bury any message that waits or is in delivery.
--
-- KEYS     unack, attempts, dead, reasons, keys, at_limit, queue, turns, blocked, settings
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for notifications
-- ARGV[3]  until     ms by Redis's clock; after that, messages without a receipt are not buried
-- ARGV[4..]  for each message: id, receipt, reason
-- Returns  { id, ... }: messages whose delivery is not current or that, without a receipt, neither
--          wait nor are in delivery. A message that is already dead for this reason is not among
--          them, so a repeated call gets the same answer

local group, channel, till = ARGV[1], ARGV[2], tonumber(ARGV[3])

local ids, receipts, why = columns(4, 3)
local holds, entries, leases = current(unack, attempts, ids, receipts)
local waits = redis.call('ZMSCORE', queue, unpack(ids))
expect_zsets(dead)
expect_hashes(reasons, keys, at_limit)
local order_keys, ordered = order_keys_of(ids, turns, blocked, queue)
local halts, passed = ordered > 0 and halts_keys(settings, group), false
local now = now_us()
local in_time = now <= till * 1000

begin_writes(unack)
local stale = {}
for i, id in ipairs(ids) do
  local by_operator = receipts[i] == ''
  if holds[i] or by_operator and in_time and (leases[i] or waits[i]) then
    bury(dead, reasons, keys, id, now, why[i])
    if order_keys[i] then
      leave_line(blocked, queue, { id }, { order_keys[i] })
      if halts and redis.call('HEXISTS', turns, order_keys[i]) == 0 then -- an operator may bury a message before its turn
        redis.call('HSET', turns, order_keys[i], id)
      end
      if not halts then passed = pass_turns(turns, blocked, queue, { id }, { order_keys[i] }) or passed end
    end
    redis.call('ZREM', unack, id)
    if by_operator then redis.call('ZREM', queue, id) end
  elseif why_dead(dead, reasons, id) ~= why[i] or not by_operator and not same_token(entries[i], receipts[i]) then
    stale[#stale + 1] = id
  end
end
if passed then wake(channel, 0, 0, group) end
release_capacity(at_limit, unack, channel, group)
return stale
