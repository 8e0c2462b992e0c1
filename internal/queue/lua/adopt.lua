-- adopt.lua: give a new partition what partition 0 has: its groups, except those that
-- are retired here, when they expire, its pauses and its limits.
--
-- KEYS     groups, settings, expiry
-- ARGV[1]  number   of groups
-- ARGV[2]  expiring  number of groups that expire
-- ARGV[3..]  the groups, then for each that expires its name and how many ms it lasts, and
--            then for each pause and limit its field and its value
-- Returns  { }

local number, expiring, given = tonumber(ARGV[1]), tonumber(ARGV[2]), { unpack(ARGV, 3) }
local _, now_ms = now_us()

local rules, first_rule = {}, number + 2 * expiring + 1
for i = first_rule, #given, 2 do rules[given[i]] = given[i + 1] end
expect_zsets(expiry)
for _, field in ipairs(redis.call('HKEYS', settings)) do
  if is_rule(field) and not rules[field] then
    redis.call('HDEL', settings, field, (string.gsub(field, '^limits:', 'rate:'))) -- of a pause, twice the same
  end
end
for field, value in pairs(rules) do redis.call('HSET', settings, field, value) end
for i = number + 1, first_rule - 1, 2 do
  local group, lasts = given[i], tonumber(given[i + 1])
  -- A group that is known here was created by its own subscribers.
  if unknown(groups, group) and not tombstone(settings, group) then
    write_expiry(settings, expiry, group, tonumber(now_ms), lasts, now_ms + lasts, 0)
  end
end
for i = 1, number do
  if not tombstone(settings, given[i]) then redis.call('SADD', groups, given[i]) end
end
return {}
