-- expiring.lua: name some groups of a partition that may end soon. It changes nothing.
--
-- KEYS     expiry
-- Returns  { group, ... }

local _, now_ms = now_us()
return near(expiry, tonumber(now_ms))
