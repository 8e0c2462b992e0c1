-- raise.lua: raise the number of partitions that a topic has. It never sinks, so
-- that no message becomes unreachable.
--
-- KEYS[1]  partitions  string  how many there are; none means 1
-- KEYS[2]  groups      set     of partition 0
-- KEYS[3]  control     hash    what they are told
-- ARGV[1]  wanted      integer
-- ARGV[2]  known       how many partitions know all groups, for the caller; 0 if it does
--                      not ask for groups
-- ARGV[3]  channel     where subscribers listen for work
-- Returns  { number of partitions, { group, ... }, { field, value, ... } }: the groups
--          and what is paused, if the number is not the one known

local partitions, groups, control = KEYS[1], KEYS[2], KEYS[3]
local wanted, known, channel = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local number = tonumber(redis.call('GET', partitions) or 1)
if not number or number < 1 or number % 1 > 0 then
  return redis.error_reply('ERR the number of partitions is damaged')
end
local raised = math.max(number, wanted)
local members, pauses = {}, {}
if known > 0 and raised ~= known then
  members = redis.call('SMEMBERS', groups)
  local told = redis.call('HGETALL', control)
  for i = 1, #told, 2 do
    if is_pause(told[i]) then
      pauses[#pauses + 1] = told[i]
      pauses[#pauses + 1] = told[i + 1]
    end
  end
end
if raised > number then
  redis.call('SET', partitions, int(raised))
  redis.pcall(NOTIFY, channel, '+')
end
return { raised, members, pauses }
