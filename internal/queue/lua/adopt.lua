-- adopt.lua: copy from partition 0 to a new partition: groups, except those that are retired here,
-- their expiry, pauses and limits.
--
-- KEYS     groups, settings, expiry
-- ARGV[1]  number   of groups
-- ARGV[2]  expiring  number of groups that expire
-- ARGV[3..]  the names of the groups; then the name of each group that expires, and for how many ms it
--            lasts without a live consumer; then field and value of each pause and limit
-- Returns  { }

local number, expiring, given = tonumber(ARGV[1]), tonumber(ARGV[2]), { unpack(ARGV, 3) }
local _, now_ms = now_us()

local rules, first_rule = {}, number + 2 * expiring + 1
for i = first_rule, #given, 2 do rules[given[i]] = given[i + 1] end
expect_zsets(expiry)
for _, field in ipairs(redis.call('HKEYS', settings)) do
  if is_rule(field) and not rules[field] then
    redis.call('HDEL', settings, field, (string.gsub(field, '^limits:', 'rate:'))) -- for a pause, both are the same field
  end
end
for field, value in pairs(rules) do redis.call('HSET', settings, field, value) end
for i = number + 1, first_rule - 1, 2 do
  local group, lasts = given[i], tonumber(given[i + 1])
  -- A group that is known here already has the expiry that its own subscribers have set.
  if unknown(groups, group) and not tombstone(settings, group) then
    write_expiry(settings, expiry, group, tonumber(now_ms), lasts, now_ms + lasts, 0)
  end
end
for i = 1, number do
  if not tombstone(settings, given[i]) then redis.call('SADD', groups, given[i]) end
end
return {}
