-- plan.lua: record what happens to the entries of a batch, before any is stored. So a process that tries again does the same, even
-- with other settings.
--
-- KEYS     reading
-- ARGV[1]  batch  its number
-- ARGV[2]  plan   string; '' to read the recorded one
-- Returns  { how, plan }: 'valid' and the first plan for this batch; 'ended' and '' if the batch has ended

local state = redis.call('HMGET', reading, 'number', 'first', 'planned', 'plan')
if tonumber(state[1] or 0) ~= tonumber(ARGV[1]) or (state[2] or '') == '' then return { 'ended', '' } end
if state[3] == ARGV[1] then return { 'valid', state[4] } end
if ARGV[2] ~= '' then
  redis.call('HDEL', reading, '') -- so that a full Redis accepts the plan: the messages may go to another one
  redis.call('HSET', reading, 'planned', ARGV[1], 'plan', ARGV[2])
end
return { 'valid', ARGV[2] }
