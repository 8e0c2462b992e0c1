-- outcome.lua: report whether a batch of push.lua is stored. If it is not, make sure that no copy of it can be stored from now on,
-- unless the publisher sends it again under a number above ARGV[3].
--
-- KEYS     scheduled, publishers
-- ARGV[1]  publisher  string
-- ARGV[2]  batch      integer
-- ARGV[3]  last       integer: batches up to this number are refused if the batch is not stored. It is the number of the
--          batch, or one less if the batch has failed and may be stored under its number later
-- ARGV[4]  first      its first id; '' to accept any batch under its number
-- Returns  { how, call, message, ... }: 'stored' and what push returned, if the last batch of the publisher has this number and is
--          stored; 'barred' if the batch is not stored; 'later' if another batch has its number or a later one, so
--          nothing is known: the publisher was restored from a snapshot

local publisher, batch, own = ARGV[1], tonumber(ARGV[2]), string.sub(ARGV[4], 1, 26) -- as in push.lua
local before = redis.call('HGET', publishers, publisher)
local number, ms, result = parse_record(before or '0 0 -')
if not number or number > batch then return { 'later' } end
local _, now_ms = now_us()
begin_writes(scheduled)

-- The result '-' stands for refused batches; no record of a stored batch has it.
if number == batch and result ~= '-' and not string.find(result, '^%S+ failed ') then
  if own ~= '' and string.sub(result .. ' ', 1, #own + 1) ~= own .. ' ' then return { 'later' } end
  redis.call('HSET', publishers, publisher, before) -- for the WAIT that may follow
  local reply = { 'stored' }
  for n in string.gmatch(result, ' (%d+)') do reply[#reply + 1] = tonumber(n) end
  return reply
end
write_record(publishers, publisher, int(tonumber(ARGV[3])), now_ms, '-', before and ms)
return { 'barred' }
