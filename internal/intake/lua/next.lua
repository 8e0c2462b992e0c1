-- next.lua: end the current batch of entries, and read the next one. Until a batch has ended, all readers get the same
-- entries. So a process may take over from one that has died, and a message that both store is stored once.
--
-- KEYS     entries, reading, rejected
-- ARGV[1]  ended   number of a batch that is finished; 0: none
-- ARGV[2]  reader  the caller
-- ARGV[3]  lease   after how many ms another reader may take over the batch
-- ARGV[4]  keep    about how many rejected entries are kept
-- ARGV[5]  step    increment of batch numbers while the clock is behind them
-- ARGV[6]  max_bytes  of an entry that are returned
-- ARGV[7..]  for each message: entry, reason
-- Returns  { now, number, wait, { entry, { field, value, ... } }, ... }: Redis's clock in ms; the number of the batch; 0 or, if
--          there is nothing to do for this reader, for how many ms, -1 if the inbox is empty. A larger entry is
--          { entry, {}, bytes }

local MAX_ENTRIES = 500 -- of a batch
local MAX_BYTES = 2097152 -- of a batch, unless its first entry has more
local PAGE = 10 -- entries that are read at once, at most: a page of large ones must not fill Redis's memory
local MAX_KEPT = 65536 -- bytes that are kept of a rejected entry
local MAX_VALUES = 2000 -- fields and values that are kept of a rejected entry
local LAST_ID = '18446744073709551615-18446744073709551615' -- no id may follow it
local LAST_TIME = 2 ^ 48 -- ms, in the year 10889
local BEGINNING = 1024 -- bytes that are kept of each field and value, if the entry has more than MAX_KEPT or MAX_VALUES
local ended, reader, max_bytes = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[6])
local rejections, reasons = columns(7, 2)
local now, now_ms = now_us()
local state = redis.call('HMGET', reading, 'number', 'first', 'last', 'reader', 'until', 'lease')
local number, first, last = tonumber(state[1] or 0), state[2] or '', state[3] or ''
redis.call('XLEN', rejected)

local function size_of(values)
  local size = 0
  for _, value in ipairs(values) do size = size + #value end
  return size
end

local ADDED = { _entry = true, _reason = true, _bytes = true } -- fields that are added to a rejected entry

-- own returns the fields and values to keep of a rejected entry, without ADDED: the entry may have been rejected before.
local function own(values)
  local list, kept, size = {}, 0, size_of(values)
  local large = size > MAX_KEPT or #values > MAX_VALUES
  for i = 1, math.min(#values, MAX_VALUES), 2 do
    local field, value = values[i], values[i + 1]
    if large then field, value = string.sub(field, 1, BEGINNING), string.sub(value, 1, BEGINNING) end
    kept = kept + #field + #value
    if kept > MAX_KEPT then break end
    if not ADDED[field] then
      list[#list + 1] = field
      list[#list + 1] = value
    end
  end
  if large then list[#list + 1], list[#list + 2] = '_bytes', int(size) end
  return list
end

-- finish moves rejected entries to a stream of their own, and removes the batch.
local function finish()
  local why, ids = {}, {}
  for i, id in ipairs(rejections) do why[id] = reasons[i] end
  for i, entry in ipairs(redis.call('XRANGE', entries, first, last)) do
    local id, values = entry[1], entry[2]
    ids[i] = id
    if why[id] then
      redis.call('XADD', rejected, 'MAXLEN', '~', ARGV[4], '*', '_entry', id, '_reason', why[id], unpack(own(values)))
    end
  end
  if #ids == 0 then return end
  -- Redis gives each entry a larger id than the last one, and rejects entries after LAST_ID. If the last id is not a plausible
  -- time, the stream begins anew, so that the id does not affect later entries.
  if #ids == redis.call('XLEN', entries) and tonumber(string.match(last, '^%d+')) > LAST_TIME then
    redis.call('UNLINK', entries)
  else
    redis.call('XDEL', entries, unpack(ids))
  end
end

-- collect reads the next batch. An entry that changes messages is a batch by itself, because the entries before it must be
-- stored first. The size of the entries so far decides how many to read at once.
local function collect()
  local list, bytes, from, count = {}, 0, '-', 1
  while true do
    local page = redis.call('XRANGE', entries, from, '+', 'COUNT', int(count))
    for _, entry in ipairs(page) do
      local values, alone = entry[2], false
      bytes = bytes + size_of(values)
      for i = 1, #values, 2 do alone = alone or values[i] == 'op' end
      if #list == MAX_ENTRIES or #list > 0 and (alone or bytes > MAX_BYTES) then return list end
      list[#list + 1] = entry
      if alone then return list end
    end
    if #page < count or bytes >= MAX_BYTES or page[count][1] == LAST_ID then return list end
    from = '(' .. page[count][1]
    count = math.min(PAGE, 2 * count, math.floor((MAX_BYTES - bytes) * #list / bytes) + 1)
  end
end

-- shown returns an entry, without its fields if it is too large for the reader, which will reject it.
local function shown(entry)
  local size = size_of(entry[2])
  return size > max_bytes and { entry[1], {}, size } or entry
end

redis.call('XDEL', entries, '0-0') -- before any write that may need memory; see begin_writes
if first ~= '' and ended == number then
  finish()
  redis.call('HSET', reading, 'first', '', 'last', '')
  first = ''
end
local batch = {}
if first ~= '' then
  local wait = tonumber(state[5]) - now_ms
  -- A wait longer than both leases means that the clock was set back. The stored lease may be another process's.
  local over = wait <= 0 or wait > math.max(tonumber(state[6] or 0), tonumber(ARGV[3]))
  if state[4] ~= reader and not over then return { now_ms, int(number), wait } end
  batch = redis.call('XRANGE', entries, first, last)
end
if #batch == 0 then
  batch = collect()
  if #batch == 0 then return { now_ms, int(number), -1 } end
  -- A failover may lose the last numbers, so numbers follow the clock: a reused one would make this batch count as stored.
  if now > number then number = now else number = number + ARGV[5] end
end
redis.call('HSET', reading, 'number', int(number), 'first', batch[1][1], 'last', batch[#batch][1],
  'reader', reader, 'until', int(now_ms + ARGV[3]), 'lease', ARGV[3])
for i, entry in ipairs(batch) do batch[i] = shown(entry) end
return { now_ms, int(number), 0, unpack(batch) }
