-- lib_idle.lua: answers a claim that finds no messages, as most claims of idle consumers do. It
-- stands in front of the libraries of claim.lua, whose keys and ARGV it uses, because creating
-- their functions takes several times as long as this file. If anything is unusual, it changes
-- nothing and leaves the claim to claim.lua, for which it has checked the types of keys.

do
  local call = redis.call
  local group, consumer, request, alive_ms, about = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[10]), ARGV[11]
  local HOUR_MS, DAY_MS = 3600000, 86400000
  local SOON_MS = 10000 -- if a group may end this soon, claim.lua answers
  local IN_LINE = 4503599627370496

  -- Fail on a key of another type now, not only once a message is due.
  for _, hash in ipairs({ messages, refs, keys, attempts, reasons, nack_metadata, settings, at_limit }) do
    call('HLEN', hash)
  end
  call('ZCARD', dead)

  local time = call('TIME')
  local now = time[1] * 1000000 + time[2]
  local now_ms = math.floor(now / 1000)
  local first
  for _, zset in ipairs({ scheduled, queue, unack }) do
    local score = tonumber(call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2])
    if score and score < IN_LINE and (not first or score < first) then first = score end
  end
  local next_check = tonumber(call('ZRANGE', expiry, 0, 0, 'WITHSCORES')[2])
  local number, last_ms = string.match(call('HGET', claims, consumer) or '', '^(%d+) (%d+) ')
  local presence = about ~= '' and call('HGET', consumers, consumer) or ''
  local since = string.match(presence, '^%d+ %d+ (%d+)')

  -- claim.lua notifies other consumers, and in each new hour renews the expiry of the records.
  local alone = call('HLEN', claims) == 1
  if (not first or first > now_ms) and call('HLEN', turns) == 0 and call('ZCARD', blocked) == 0 and (not next_check or next_check > now_ms + SOON_MS) and number and alone
    and tonumber(number) < tonumber(request) and (about == '' or since)
    and math.floor(last_ms / HOUR_MS) == math.floor(now_ms / HOUR_MS) and call('SISMEMBER', groups, group) == 1 then
    local count = tonumber(call('GET', partitions)) or 0
    local ms = string.format('%.0f', now_ms)
    local deadline = string.format('%.0f', math.ceil(now / 1000) + ARGV[6])
    call('ZREM', unack, '') -- first, so that Redis stores the record without memory, too; see lib.lua
    call('HSET', claims, consumer, request .. ' ' .. ms .. ' ["' .. deadline .. '","",{},{}]')
    if about ~= '' and math.floor(last_ms / 1000) ~= math.floor(now_ms / 1000) then
      local alive = string.format('%.0f', now_ms + alive_ms)
      redis.pcall('HSET', consumers, consumer, table.concat({ alive, ms, since, about }, ' '))
      redis.pcall('PEXPIRE', consumers, math.max(DAY_MS, alive_ms))
    end
    return { 'claimed', now_ms, tonumber(deadline), first and math.max(1, first * 1000 - now) or -1, '', {}, {}, {}, {}, count, 0 }
  end
end

