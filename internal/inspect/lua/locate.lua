-- locate.lua: read the state of one message in all groups. It changes nothing.
--
-- KEYS     scheduled, messages, groups, refs, keys; for each group: queue, unack, dead, attempts,
--          reasons, nack_metadata
-- ARGV[1]  id       '' to find the message by its key
-- ARGV[2]  message key
-- ARGV[3]  bytes    of metadata to return at most
-- ARGV[4..]  groups, in the order of their keys: all registered ones, and others that may hold it
-- Returns  { 'groups', name, ... } with the groups that ARGV lacks
--          { 'none' } if there is no such message
--          { 'found', now in ms, id, due in ms or '' once groups have it, size, body,
--            { group, state, score, entry, reason, size of its metadata, metadata, ... } }; false
--            stands for missing values and for metadata that are left out

local id, key, bytes = ARGV[1], ARGV[2], tonumber(ARGV[3])
local call = redis.call

if id == '' then id = find_by_key(keys, messages, key) end
if not id then return { 'none' } end
local members, known, missing = with_refs(call('SMEMBERS', groups), refs, id), {}, {}
for i = 4, #ARGV do known[ARGV[i]] = true end
for _, name in ipairs(members) do
  if not known[name] then missing[#missing + 1] = name end
  known[name] = 'member'
end
if #missing > 0 and has_unnamed_group(groups, refs, scheduled, id, 4) then return prepend('groups', missing) end

local scheduled_at = call('ZSCORE', scheduled, id)
local rows, n, some = {}, 0, scheduled_at
local function row(name, state, score, entry, why, size, metadata)
  rows[n + 1], rows[n + 2], rows[n + 3], rows[n + 4] = name, state, score, entry
  rows[n + 5], rows[n + 6], rows[n + 7] = why, size, metadata
  n = n + 7
end
for i = EACH_FROM, #KEYS, EACH_WIDTH do
  local queue, unack, dead, attempts, reasons, nack_metadata = unpack(KEYS, i, i + EACH_WIDTH - 1)
  local name = ARGV[4 + (i - EACH_FROM) / EACH_WIDTH]
  local held = call('ZSCORE', unack, id)
  local waits = not held and call('ZSCORE', queue, id)
  local buried = not held and not waits and call('ZSCORE', dead, id)
  local score = held or waits or buried
  if score then
    some = true
    local deliveries, size = call('HGET', attempts, id), call('HSTRLEN', nack_metadata, id)
    local metadata = size > 0 and size <= bytes and call('HGET', nack_metadata, id)
    if metadata then bytes = bytes - size end
    local why = buried and call('HGET', reasons, id)
    row(name, state_of(waits, held, buried, deliveries), score, deliveries or '', why or '', size, metadata)
  elseif known[name] == 'member' and not scheduled_at then
    row(name, 'done', '', '', '', 0, false)
  end
end
local body = call('HGET', messages, id)
if not body and not some then return { 'none' } end
local _, now_ms = now_us()
return { 'found', now_ms, id, scheduled_at or '', call('HSTRLEN', messages, id), body, rows }
