-- extend.lua: continue the current deliveries of messages; their leases start anew.
-- Those that a handler has by now count as seen, even if their consumer is lost. Without
-- messages, the consumer only says that it is alive.
--
-- KEYS     unack, attempts, groups, consumers
-- ARGV[1]  lease      ms
-- ARGV[2]  group
-- ARGV[3]  consumer
-- ARGV[4]  alive      for how many ms the consumer counts as alive
-- ARGV[5]  about      the consumer, for people; '' to record nothing
-- ARGV[6..]  for each message: id, receipt, 1 if a handler has it or else 0
-- Returns  { id, ... }: those whose delivery is no longer the current one

local group, consumer, alive, about = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local now, now_ms = now_us()
local deadline = int(math.ceil(now / 1000) + tonumber(ARGV[1]))

local ids, receipts, handed_out = columns(6, 3)
local holds, entries = current(unack, attempts, ids, receipts)

local leases, seen, stale = {}, {}, {}
for i, id in ipairs(ids) do
  if holds[i] then
    leases[#leases + 1] = deadline
    leases[#leases + 1] = id
    -- An entry that differs from the receipt is confirmed already.
    if handed_out[i] == '1' and (entries[i] or '1') == receipts[i] then
      seen[#seen + 1] = id
      seen[#seen + 1] = confirmed(receipts[i])
    end
  else
    stale[#stale + 1] = id
  end
end

begin_writes(unack)
if #seen > 0 then redis.call('HSET', attempts, unpack(seen)) end
if #leases > 0 then redis.call('ZADD', unack, unpack(leases)) end
-- A consumer whose group has been retired is not noted: nobody would remove the key.
if (#leases > 0 or #ids == 0) and about ~= '' and not unknown(groups, group) then
  note_alive(consumers, consumer, now_ms, alive, about)
end
return stale
