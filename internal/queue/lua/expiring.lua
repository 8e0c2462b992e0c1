-- expiring.lua: name some groups of a partition that may end soon. It changes nothing.
--
-- KEYS[1]  expiry  zset  group -> when to look whether it has expired, ms
-- Returns  { group, ... }

local expiry = KEYS[1]
local _, now_ms = now_us()
return near(expiry, tonumber(now_ms))
