-- turn.lua: read which message has the turn of an ordering key, and how many messages wait in line before
-- a given one. It changes nothing.
--
-- KEYS     turns, blocked
-- ARGV[1]  id    of a message with an ordering key
-- ARGV[2]  due   ms
-- Returns  { id of the message whose turn it is or '', how many wait in line before this one }

local id, due = ARGV[1], tonumber(ARGV[2])

local order_key = order_key_of(id)
if not order_key then return { '', 0 } end
local owner = redis.call('HGET', turns, order_key) or ''
return { owner, redis.call('ZLEXCOUNT', blocked, '[' .. order_key, '(' .. place_of(order_key, due, id)) }
