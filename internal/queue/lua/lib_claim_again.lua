-- lib_claim_again.lua: answers a repeated claim. It stands in front of claim.lua, whose keys it uses.
--
-- A repeated claim gets the messages of the first attempt that its consumer still holds, as far as they fit the limits of the copy,
-- and the messages that the first attempt buried. The leases keep their ends, so that other consumers get what this one cannot fetch
-- within one lease. Messages that do not fit return to the queue, unseen. Once the leases are over, all messages do, and one that
-- exceeds the limit by itself goes behind the others that are due. The record keeps the messages that are left, so that no copy gets
-- more.

-- still_held returns the messages of a record that its consumer still holds: no consumer has claimed or
-- extended them since. The receipt alone does not prove that: a torn file may bring back the record of a
-- claim that was undone, and another consumer may have claimed the messages since.
local function still_held(record)
  local deadline, details, ids, buried = unpack(cjson.decode(record))
  local dues, receipts = {}, {}
  for due, receipt in string.gmatch(details, '(%S+) (%S+)') do
    dues[#dues + 1], receipts[#receipts + 1] = due, receipt
  end
  local holds, _, leases = current(unack, attempts, ids, receipts)
  local held = { deadline = deadline, ids = {}, dues = {}, receipts = {}, recorded = buried, buried = {} }
  for i, id in ipairs(ids) do
    if holds[i] and tonumber(leases[i]) == tonumber(deadline) and redis.call('HEXISTS', messages, id) == 1 then
      local n = #held.ids + 1
      held.ids[n], held.dues[n], held.receipts[n] = id, dues[i], receipts[i]
    end
  end
  for i = 1, #buried, 2 do
    if redis.call('ZSCORE', dead, buried[i]) then
      table.insert(held.buried, buried[i])
      table.insert(held.buried, buried[i + 1])
    end
  end
  return held
end

-- fitting divides held messages into a batch that fits the limits, and messages to return.
local function fitting(held, limit, max_bytes, now_ms, has_metadata)
  local batch = { deadline = held.deadline, ids = {}, details = {}, buried = held.buried }
  local back = { ids = {}, scores = {}, entries = {} }
  local over, stopped, bytes = tonumber(held.deadline) <= tonumber(now_ms), false, 0
  for i, id in ipairs(held.ids) do
    local n, m = #batch.ids, #back.ids
    local length = redis.call('HSTRLEN', messages, id) + (has_metadata and redis.call('HSTRLEN', nack_metadata, id) or 0)
    stopped = stopped or over or n >= limit or n > 0 and bytes + length > max_bytes
    if stopped then
      back.ids[m + 1] = id
      back.scores[2 * m + 1], back.scores[2 * m + 2] = over and length > max_bytes and now_ms or held.dues[i], id
      back.entries[2 * m + 1], back.entries[2 * m + 2] = id, unseen(held.receipts[i])
    else
      bytes = bytes + length
      batch.ids[n + 1], batch.details[n + 1] = id, held.dues[i] .. ' ' .. held.receipts[i]
    end
  end
  batch.details = table.concat(batch.details, ' ')
  return batch, back
end

-- release_unseen returns messages to the queue, unseen.
local function release_unseen(back, group, channel, now)
  if #back.ids == 0 then return end
  redis.call('HSET', attempts, unpack(back.entries))
  redis.call('ZADD', queue, unpack(back.scores))
  redis.call('ZREM', unack, unpack(back.ids))
  redis.call('HDEL', at_limit, group)
  wake(channel, now, 0, group)
end
