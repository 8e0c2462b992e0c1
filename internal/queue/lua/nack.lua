-- nack.lua: make messages whose deliveries failed due again after a delay, or dead messages after
-- the last delivery. A handler may decide otherwise: a deferral does not count as a delivery, and a
-- burial makes a dead message at once.
--
-- KEYS     unack, attempts, queue, nack_metadata, dead, reasons, keys, at_limit, turns, blocked, settings
-- ARGV[1]  group
-- ARGV[2]  channel   where subscribers listen for notifications
-- ARGV[3]  max deliveries, 0 for no limit
-- ARGV[4..]  for each message: id, receipt, 'defer' or 'bury' or '', detail, new metadata or ''.
--            detail is the reason for 'bury', else the delay in ms. Without a decision, a space and
--            the error may follow, which is appended to the reason of a dead message
-- Returns  { { id, ... }, { id, reason, ... } }: messages whose delivery is not current, and
--          messages buried by this call or by an earlier one with the same receipt

local group, channel, max = ARGV[1], ARGV[2], tonumber(ARGV[3])

local ids, receipts, decisions, details, metadata = columns(4, 5)

expect_hashes(nack_metadata, reasons, keys, at_limit)
expect_zsets(dead)
local holds, entries = current(unack, attempts, ids, receipts)
local earliest = head(queue)
local order_keys, ordered = order_keys_of(ids, turns, blocked, queue)
local halts, passed = ordered > 0 and halts_keys(settings, group), false
local now = now_us()
local stale, buried, first = {}, {}, nil

begin_writes(unack)
for i, id in ipairs(ids) do
  if holds[i] then
    local decision, entry, seen, unsure = decisions[i], confirmed(receipts[i])
    local reason
    if decision == 'defer' then
      entry = unseen(receipts[i]) -- also if a heartbeat has confirmed the delivery
    else
      reason = decision == 'bury' and details[i] or exhausted(seen, unsure, max)
    end
    local delay, trouble = string.match(details[i], '^(%S+) ?(.*)$')
    if reason and decision == '' and trouble ~= '' then reason = table.concat({ reason, trouble }, ': ') end
    if metadata[i] ~= '' then redis.call('HSET', nack_metadata, id, metadata[i]) end
    redis.call('HSET', attempts, id, entry)
    if reason then
      bury(dead, reasons, keys, id, now, reason)
      if order_keys[i] and not halts then passed = pass_turns(turns, blocked, queue, { id }, { order_keys[i] }) or passed end
      buried[#buried + 1] = id
      buried[#buried + 1] = reason
    else
      local due = due_ms(now, tonumber(delay))
      if not first or due < first then first = due end
      redis.call('ZADD', queue, int(due), id)
    end
    redis.call('ZREM', unack, id)
  else
    local reason = decisions[i] ~= 'defer' and entries[i] == confirmed(receipts[i]) and why_dead(dead, reasons, id)
    if reason and (decisions[i] ~= 'bury' or reason == details[i]) then
      buried[#buried + 1] = id
      buried[#buried + 1] = reason
    else
      stale[#stale + 1] = id
    end
  end
end

release_capacity(at_limit, unack, channel, group)
if passed then wake(channel, 0, 0, group) end
if first and (not earliest or first < earliest) then wake(channel, now, first, group) end
return { stale, buried }
