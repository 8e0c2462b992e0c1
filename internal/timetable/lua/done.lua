-- done.lua: set when schedules that were taken are to be taken next. A schedule that was defined or taken again since is
-- not changed, so a late call does no harm.
--
-- KEYS     schedules, upcoming
-- ARGV[1..]  of each: schedule; revision; end of its lease, ms; when it is to be taken next, ms
-- Returns  { }

redis.call('HLEN', schedules)
for i = 1, #ARGV, 4 do
  local id, lease = ARGV[i], redis.call('ZSCORE', upcoming, ARGV[i])
  local revision = string.match(redis.call('HGET', schedules, id) or '', '^%d+')
  if revision == ARGV[i + 1] and lease and tonumber(lease) == tonumber(ARGV[i + 2]) then
    redis.call('ZADD', upcoming, ARGV[i + 3], id)
  end
end
return {}
