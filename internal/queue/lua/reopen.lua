-- reopen.lua: tell whether a batch that push has refused is stored all the same: as another one, under its number. If the batch
-- has failed, it may be stored under its number again. For publishers that try until a batch is stored: for others, a failure
-- is final.
--
-- KEYS     scheduled, publishers
-- ARGV[1]  publisher  string
-- ARGV[2]  batch      integer
-- Returns  { how, call, message, ... }: 'stored' and what push returned, if the last batch of the publisher has
--          this number and is stored; else 'open'

local publisher, batch = ARGV[1], tonumber(ARGV[2])
local number, ms, result = parse_record(redis.call('HGET', publishers, publisher) or '')
if number ~= batch then return { 'open' } end
if not string.find(result, '^%S+ failed ') then
  local reply = { 'stored' }
  for n in string.gmatch(result, ' (%d+)') do reply[#reply + 1] = tonumber(n) end
  return reply
end

-- The record stays, for an earlier number: it keeps away copies of earlier batches.
begin_writes(scheduled)
redis.call('HSET', publishers, publisher, int(batch - 1) .. ' ' .. int(ms) .. ' -')
return { 'open' }
