-- group_list.lua: read the groups of a partition, and a page of their settings. It changes nothing.
--
-- KEYS     groups, settings
-- ARGV[1]  cursor   '0', or that of the previous call
-- Returns  { now in ms, cursor or '0' after the last page, { group, ... } with cursor '0' only,
--            { field, value, ... } }; a field may be returned twice

local cursor = ARGV[1]
local STEP = 500 -- fields, about

local _, now_ms = now_us()
local members = cursor == '0' and redis.call('SMEMBERS', groups) or {}
local page = redis.call('HSCAN', settings, cursor, 'COUNT', STEP)
return { now_ms, page[1], members, page[2] }
