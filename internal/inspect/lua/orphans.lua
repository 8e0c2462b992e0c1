-- orphans.lua: find bodies whose messages are in no set. It changes nothing.
--
-- KEYS     messages, groups, refs, scheduled; for each group: queue, unack, dead
-- ARGV[1]  cursor  0 to begin
-- ARGV[2]  count   about how many bodies to read, if they are small
-- ARGV[3..]  the groups, in the order of their keys
-- Returns  { 'groups', name, ... } with the groups that ARGV lacks; to call again
--          { cursor, number of bodies read, their bytes, id, ... }: cursor continues from
--          here; 0 after the last

local cursor, count, call = ARGV[1], tonumber(ARGV[2]), redis.call
local MAX_BYTES = 262144 -- of bodies that one call copies

local known, missing = {}, {}
for i = 3, #ARGV do known[ARGV[i]] = true end

-- note notes the groups that the caller does not know.
local function note(names)
  for _, name in ipairs(names) do
    if not known[name] then missing[#missing + 1] = name end
    known[name] = true
  end
end

note(call('SMEMBERS', groups))
if #missing > 0 then return prepend('groups', missing) end

-- HSCAN copies the bodies, too, so a sample of their sizes decides how many to read.
local sample, size = call('HRANDFIELD', messages, 10), 0
for _, id in ipairs(sample) do size = size + call('HSTRLEN', messages, id) end
if size > 0 then count = math.max(1, math.min(count, math.floor(MAX_BYTES * #sample / size))) end

local found, ids, lone = call('HSCAN', messages, cursor, 'COUNT', int(count)), {}, {}
local copied = 0
for i = 1, #found[2], 2 do
  ids[#ids + 1] = found[2][i]
  copied = copied + #found[2][i + 1]
end
for _, id in ipairs(ids) do lone[id] = true end

local function leave_out(zset)
  for i, score in ipairs(#ids > 0 and call('ZMSCORE', zset, unpack(ids)) or {}) do
    if score then lone[ids[i]] = false end
  end
end

leave_out(scheduled)
for i = EACH_FROM, #KEYS, EACH_WIDTH do
  local queue, unack, dead = unpack(KEYS, i, i + EACH_WIDTH - 1)
  leave_out(queue)
  leave_out(unack)
  leave_out(dead)
end

local orphans = { found[1], #ids, copied }
for _, id in ipairs(ids) do
  if lone[id] then
    note(with_refs({}, refs, id))
    orphans[#orphans + 1] = id
  end
end
if #missing > 0 then return prepend('groups', missing) end
return orphans
