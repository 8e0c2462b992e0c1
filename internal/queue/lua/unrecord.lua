-- unrecord.lua: remove the records of a publisher that has ended. It calls this only if no copy
-- of its batches can come any more: without its record, one would be stored again.
--
-- KEYS     publishers
-- ARGV[1..]  publishers
-- Returns  { }

redis.call('HDEL', publishers, unpack(ARGV))
return {}
