-- needed.lua: read which version of the protocol the data of a partition need.
--
-- KEYS     control, taken, messages
-- Returns  { version }. Of the messages, it looks at some

local SOME = 20
for _, id in ipairs(redis.call('HRANDFIELD', messages, SOME)) do
  if has_ttl(id) or line_of(id) then return { 3 } end
end
for _, field in ipairs(redis.call('HKEYS', control)) do
  local group = string.match(field, '^limits:(.*)$')
  if group and halts_keys(control, group) then return { 3 } end
end
local rules = redis.call('HLEN', control) > 0 or redis.call('ZCARD', taken) > 0
return { rules and 2 or 1 }
