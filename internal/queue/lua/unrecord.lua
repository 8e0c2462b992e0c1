-- unrecord.lua: remove the records of a publisher that has ended. It calls this only if no copy
-- of its batches can come any more: without its record, one would be stored again.
--
-- KEYS[1]  publishers  hash  publisher -> record of its last batch
-- ARGV[1..]  publishers
-- Returns  { }

local publishers = KEYS[1]
redis.call('HDEL', publishers, unpack(ARGV))
return {}
