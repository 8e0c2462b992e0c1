-- raise.lua: raise the number of partitions of a topic. The number never falls, so no
-- message becomes unreachable. The keys are those of partition 0.
--
-- KEYS     partitions, groups, settings, expiry
-- ARGV[1]  wanted      integer
-- ARGV[2]  known       number of partitions that have all settings, as the caller knows; 0 if it
--                      requests no settings
-- ARGV[3]  channel     where subscribers listen for notifications
-- Returns  { number of partitions, { group, ... }, { field, value, ... },
--            { group, lasts in ms, ... }, 1 if groups may end soon else 0 }. The lists are the groups,
--          the pauses and limits, and the groups that expire; all are empty if known is 0 or the number
--          { 0, { group }, { max }, { }, 0 } if the limits of a group allow only max partitions;
--          nothing changed

local wanted, known, channel = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

-- max_partitions returns how many partitions the limits in a field allow, and the group of these
-- limits. Each partition needs a share. It returns nothing if the field has no such limits.
local function max_partitions(field, value)
  local group = string.match(field, '^limits:(.*)$')
  local max = group and tonumber(string.match(value, '^%d+ [%d.]+ %d+ (%d+)'))
  if max and max > 0 then return max, group end
end

local number = tonumber(redis.call('GET', partitions) or 1)
if not number or number < 1 or number % 1 > 0 then
  return redis.error_reply('ERR the number of partitions is damaged')
end
local _, now_ms = now_us()
local soon = #expiring_soon(expiry, tonumber(now_ms)) > 0 and 1 or 0
local raised = math.max(number, wanted)
local members, rules, expiring = {}, {}, {}
if raised ~= number or known > 0 and raised ~= known then
  local fields = redis.call('HGETALL', settings)
  for i = 1, #fields, 2 do
    local max, group = max_partitions(fields[i], fields[i + 1])
    if raised > number and max and max < raised then return { 0, { group }, { int(max) }, {}, 0 } end
    if known > 0 and is_rule(fields[i]) then
      rules[#rules + 1] = fields[i]
      rules[#rules + 1] = fields[i + 1]
    end
  end
  if known > 0 then members = redis.call('SMEMBERS', groups) end
  for _, group in ipairs(members) do
    local lasts = expiry_of(settings, group)
    if lasts then
      expiring[#expiring + 1] = group
      expiring[#expiring + 1] = int(lasts)
    end
  end
end
if raised > number then
  redis.call('SET', partitions, int(raised))
  redis.pcall(NOTIFY, channel, '+')
end
return { raised, members, rules, expiring, soon }
