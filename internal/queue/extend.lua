-- extend.lua: the current deliveries of messages go on; their leases start anew.
--
-- KEYS[1]  unack     zset  id -> lease deadline, ms
-- KEYS[2]  attempts  hash  id -> token of the last delivery
-- ARGV[1]  lease     ms
-- ARGV[2..]  for each message: id, token
-- Returns  { id, ... }: those whose delivery is no longer the current one

local unack, attempts = KEYS[1], KEYS[2]
local deadline = int(math.ceil(now_us() / 1000) + tonumber(ARGV[1]))

local ids, tokens = {}, {}
for i = 2, #ARGV, 2 do
  ids[#ids + 1], tokens[#tokens + 1] = ARGV[i], ARGV[i + 1]
end
local holds = current(unack, attempts, ids, tokens)

local leases, stale = {}, {}
for i, id in ipairs(ids) do
  if holds[i] then
    leases[#leases + 1] = deadline
    leases[#leases + 1] = id
  else
    stale[#stale + 1] = id
  end
end

-- A write that frees comes first; see claim.lua.
redis.call('ZREM', unack, '')
if #leases > 0 then redis.call('ZADD', unack, unpack(leases)) end
return stale
