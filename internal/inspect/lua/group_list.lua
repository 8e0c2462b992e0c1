-- group_list.lua: read which groups a partition has, and their settings. It changes nothing.
--
-- KEYS     groups, settings
-- ARGV[1]  cursor   '0', or where the call before has ended
-- Returns  { now in ms, cursor or '0' if that was all, { group, ... } with cursor '0' only,
--          { field, value, ... }, perhaps some of them twice }

local cursor = ARGV[1]
local STEP = 500 -- fields, about

local _, now_ms = now_us()
local members = cursor == '0' and redis.call('SMEMBERS', groups) or {}
local page = redis.call('HSCAN', settings, cursor, 'COUNT', STEP)
return { now_ms, page[1], members, page[2] }
