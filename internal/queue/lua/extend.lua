-- extend.lua: renew the leases of current deliveries. A message that a handler has counts as seen
-- from then on, even if its consumer is lost. Without messages, the call only records that the
-- consumer is alive.
--
-- KEYS     unack, attempts, groups, consumers
-- ARGV[1]  lease      ms
-- ARGV[2]  group
-- ARGV[3]  consumer
-- ARGV[4]  alive      for how many ms the consumer counts as alive
-- ARGV[5]  about      description of the consumer for operators; '' to record nothing
-- ARGV[6..]  for each message: id, receipt, 1 if a handler has it or else 0
-- Returns  { id, ... }: messages whose delivery is not current

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
-- If its group has been retired, the consumer is not recorded: nothing would remove the key.
if (#leases > 0 or #ids == 0) and about ~= '' and not unknown(groups, group) then
  note_alive(consumers, consumer, now_ms, alive, about)
end
return stale
