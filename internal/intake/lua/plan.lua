-- plan.lua: keep what is to become of the entries of a batch, before any is stored. So a process that tries again does the same, also
-- with other settings.
--
-- KEYS     reading
-- ARGV[1]  batch  its number
-- ARGV[2]  plan   string; '' to ask for the one that counts
-- Returns  { how, plan }: 'counts' and the first plan for this batch; 'ended' and '' if the batch has ended

local state = redis.call('HMGET', reading, 'number', 'first', 'planned', 'plan')
if tonumber(state[1] or 0) ~= tonumber(ARGV[1]) or (state[2] or '') == '' then return { 'ended', '' } end
if state[3] == ARGV[1] then return { 'counts', state[4] } end
if ARGV[2] ~= '' then
  redis.call('HDEL', reading, '') -- so a full Redis lets the plan be kept: what is stored by it may be in another one
  redis.call('HSET', reading, 'planned', ARGV[1], 'plan', ARGV[2])
end
return { 'counts', ARGV[2] }
