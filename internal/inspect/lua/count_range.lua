-- count_range.lua: count the messages of one place within a range of scores, and find the highest score
-- there. It changes nothing.
--
-- KEYS     scheduled, queue, unack, dead
-- ARGV[1]  place      scheduled, queue, unack or dead
-- ARGV[2]  from       a score, included; -inf
-- ARGV[3]  before     a score, not included; +inf for no end
-- ARGV[4]  id         of a message with the score before: up to 1,000 messages that precede it at this
--                     score count, too; '' for none
-- Returns  { count, the highest score within the range, or '' if it is empty }

local place, from, before, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local MAX_SAME = 1000
local set = ({ scheduled = scheduled, queue = queue, unack = unack, dead = dead })[place]
local last = before == '+inf' and before or '(' .. before
local count = redis.call('ZCOUNT', set, from, last)
for i, other in ipairs(id == '' and {} or redis.call('ZRANGEBYSCORE', set, before, before, 'LIMIT', 0, MAX_SAME)) do
  if other >= id then break end
  count = count + 1
end
local highest = redis.call('ZRANGE', set, last, from, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
return { count, highest or '' }
