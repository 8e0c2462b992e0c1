-- cancel.lua: take back the message that holds a key, from all groups. The id makes
-- sure that a call sent again does not take back the next message with that key.
--
-- KEYS[1]  scheduled  zset  id -> due, ms
-- KEYS[2]  messages   hash  id -> encoded message
-- KEYS[3]  groups     set   consumer groups
-- KEYS[4]  refs       hash  id -> groups still to finish
-- KEYS[5]  keys       hash  message key -> id
-- KEYS[6..]  for each group: its queue, unack, attempts and changed
-- ARGV[1]  message key
-- ARGV[2]  id
-- ARGV[3..]  the groups, in the order of their keys
-- Returns  { 'groups', name, ... } when these are the groups instead; nothing changed
--          { 'cancelled' }
--          { 'none' } when the message does not hold the key any more

local scheduled, messages, groups, refs, keys = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local members = redis.call('SMEMBERS', groups)
if differ(members, 3) then return { 'groups', unpack(members) } end

local id = ARGV[2]
if redis.call('HGET', keys, ARGV[1]) ~= id then return { 'none' } end

redis.call('ZCARD', scheduled)
redis.call('HLEN', messages)
redis.call('HLEN', refs)
for i = 6, #KEYS, 4 do
  redis.call('ZCARD', KEYS[i])
  redis.call('ZCARD', KEYS[i + 1])
  redis.call('HLEN', KEYS[i + 2])
  redis.call('HLEN', KEYS[i + 3])
end

redis.call('ZREM', scheduled, id)
for i = 6, #KEYS, 4 do
  redis.call('ZREM', KEYS[i], id)
  redis.call('ZREM', KEYS[i + 1], id)
  redis.call('HDEL', KEYS[i + 2], id)
  redis.call('HDEL', KEYS[i + 3], id)
end
redis.call('HDEL', refs, id)
redis.call('HDEL', messages, id)
redis.call('HDEL', keys, ARGV[1])
return { 'cancelled' }
