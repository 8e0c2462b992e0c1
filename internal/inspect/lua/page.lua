-- page.lua: read messages of one place, ordered by score and then by id, from any position on. It
-- reads up to 1,000 of them, and changes nothing.
--
-- KEYS     scheduled, queue, unack, dead, attempts, reasons, messages, nack_metadata
-- ARGV[1]  place      scheduled, queue, unack or dead
-- ARGV[2]  score      of the position to begin at; -inf
-- ARGV[3]  id         of the position to begin at
-- ARGV[4]  before     a score, not included; +inf for no end
-- ARGV[5]  limit      integer, 1..1000
-- ARGV[6]  key        prefix of the message's key; '' for any, or none
-- ARGV[7]  reason     text that the reason contains; '' for any
-- ARGV[8]  attempts   minimum number of deliveries that count
-- ARGV[9]  bytes      of text to return at most, unless the first message has more
-- ARGV[10] content    'bodies' to read bodies and metadata, or ''
-- Returns  { now in ms, 1 if more follow or else 0, score and id of the last that was read
--          or '' and '', { id, score, entry, deliveries, reason, size, body, metadata, ... } };
--          false stands for missing values

local place, score, start, before = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local limit, key, reason, min_attempts = tonumber(ARGV[5]), ARGV[6], ARGV[7], tonumber(ARGV[8])
local bytes, content = tonumber(ARGV[9]), ARGV[10] == 'bodies'
local call = redis.call
local MAX_READ = 1000 -- messages to read
local WIDTH = 8 -- values of a message in the reply

local sets = { scheduled = scheduled, queue = queue, unack = unack, dead = dead }
local set, of_group = sets[place], place ~= 'scheduled'
local _, now_ms = now_us()

-- precedes compares ids by their bytes, as Redis sorts them. Lua's own < goes by the
-- server's locale.
local function precedes(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- rank_of returns how many members precede a score and an id. Redis counts by score; among equal
-- scores, which a million messages may have, rank_of bisects.
local function rank_of(id)
  local low, high = call('ZCOUNT', set, '-inf', '(' .. score), call('ZCOUNT', set, '-inf', score)
  while id ~= '' and low < high do
    local middle = math.floor((low + high) / 2)
    if precedes(call('ZRANGE', set, middle, middle)[1], id) then low = middle + 1 else high = middle end
  end
  return low
end

-- counted returns how many deliveries of a message count, including one that is under way.
local function counted(entry)
  if not entry then return place == 'unack' and 1 or 0 end
  local _, seen, unsure = split(entry)
  return math.max(seen + unsure, place == 'unack' and 1 or 0)
end

local first, ends = rank_of(start), call('ZCOUNT', set, '-inf', '(' .. before)
if before == '+inf' then ends = call('ZCARD', set) end
local wanted = key == '' and reason == '' and min_attempts == 0 and limit or MAX_READ
local last = math.min(first + wanted, ends) - 1
local members = last >= first and call('ZRANGE', set, first, last, 'WITHSCORES') or {}

local ids = {}
for i = 1, #members, 2 do ids[#ids + 1] = members[i] end
local entries = of_group and #ids > 0 and call('HMGET', attempts, unpack(ids)) or {}
local reasons_of = place == 'dead' and #ids > 0 and call('HMGET', reasons, unpack(ids)) or {}
local own = content and of_group and call('HLEN', nack_metadata) > 0

-- matches reports whether a message passes the filters.
local function matches(id, deliveries, why)
  if key ~= '' and string.sub(key_of(id) or '', 1, #key) ~= key then return false end
  if deliveries < min_attempts then return false end
  return reason == '' or why and string.find(why, reason, 1, true) ~= nil
end

-- A message is chosen before its body is read: one that does not fit must not be copied in
-- Redis's memory.
local rows, size, scanned, chosen, places = {}, 0, 0, {}, {}
while scanned < #ids and #chosen < limit do
  local id, entry = ids[scanned + 1], entries[scanned + 1]
  local deliveries, why = counted(entry), reasons_of[scanned + 1] or false
  if matches(id, deliveries, why) then
    local length, text = call('HSTRLEN', messages, id), #id + (why and #why or 0)
    if content then text = text + length + (own and call('HSTRLEN', nack_metadata, id) or 0) end
    if #chosen > 0 and size + text > bytes then break end
    size = size + text
    local n = WIDTH * #chosen
    chosen[#chosen + 1], places[#places + 1] = id, n
    rows[n + 1], rows[n + 2], rows[n + 3], rows[n + 4] = id, members[2 * scanned + 2], entry or '1', deliveries
    rows[n + 5], rows[n + 6], rows[n + 7], rows[n + 8] = why, length, false, false
  end
  scanned = scanned + 1
end

if content and #chosen > 0 then
  local bodies = call('HMGET', messages, unpack(chosen))
  local metadata = own and call('HMGET', nack_metadata, unpack(chosen)) or {}
  for i, n in ipairs(places) do
    rows[n + 7], rows[n + 8] = bodies[i], metadata[i] or false
  end
end

local more = first + scanned < ends and 1 or 0
return { now_ms, more, members[2 * scanned] or '', ids[scanned] or '', rows }
