-- delete_records.lua: remove the records of a closed publisher. The publisher calls it only if no repeated call
-- of its batches can arrive later, because Redis would store such a batch again without the record.
--
-- KEYS     publishers
-- ARGV[1..]  publishers
-- Returns  { }

redis.call('HDEL', publishers, unpack(ARGV))
return {}
