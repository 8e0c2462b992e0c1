-- lib_refs.lua: which groups still need a message that was given to several. It follows lib.lua
-- in front of the scripts that have refs among their KEYS.
--
-- refs has, under the id of such a message, the names of these groups, as a JSON array. Each
-- group that is done takes its own out. So many names are divided: the id then has "/" and an
-- array of numbers, as text, and id/number has the names whose hash gives this number.

local MANY_NAMES = 64
local PARTS = 32

-- part_of is the number of the part that has a name.
local function part_of(name)
  return string.format('%d', tonumber(string.sub(redis.sha1hex(name), 1, 4), 16) % PARTS)
end

-- quoted is a name as refs has it. It contains no comma, so each comma in the list
-- separates two names.
local function quoted(name)
  return (string.gsub(cjson.encode(name), ',', '\\u002c'))
end

local function list_of(names)
  local list = {}
  for i, name in ipairs(names) do list[i] = quoted(name) end
  return '[' .. table.concat(list, ',') .. ']'
end

-- names_in are the names in a list; none if it is garbled.
local function names_in(list)
  local whole, names = pcall(cjson.decode, list or '[]')
  return whole and type(names) == 'table' and names or {}
end

-- divided is the array of numbers if a list is divided.
local function divided(list)
  return list and string.sub(list, 1, 1) == '/' and string.sub(list, 2) or nil
end

-- parts_in are the fields that have the parts of a message's list.
local function parts_in(id, list)
  local fields = {}
  for _, number in ipairs(names_in(divided(list))) do
    if type(number) == 'string' then fields[#fields + 1] = id .. '/' .. number end
  end
  return fields
end

-- fields_of are the fields of refs, with their values, that name the groups that need messages.
local function fields_of(ids, names)
  local parts, numbers, fields = {}, {}, {}
  for _, name in ipairs(#names > MANY_NAMES and names or {}) do
    local number = part_of(name)
    if not parts[number] then
      parts[number] = {}
      numbers[#numbers + 1] = number
    end
    table.insert(parts[number], name)
  end
  local list = #numbers > 0 and '/' .. list_of(numbers) or list_of(names)
  for number, part in pairs(parts) do parts[number] = list_of(part) end
  for _, id in ipairs(ids) do
    for number, part in pairs(parts) do
      fields[#fields + 1] = id .. '/' .. number
      fields[#fields + 1] = part
    end
    fields[#fields + 1] = id
    fields[#fields + 1] = list
  end
  return fields
end

-- replace_refs makes just these groups need a message. It adds before it removes.
local function replace_refs(refs, id, names)
  local old = parts_in(id, redis.call('HGET', refs, id))
  if #names == 0 then
    redis.call('HDEL', refs, id, unpack(old))
    return
  end
  local fields, kept, over = fields_of({ id }, names), {}, {}
  for i = 1, #fields, 2 do kept[fields[i]] = true end
  for _, field in ipairs(old) do
    if not kept[field] then over[#over + 1] = field end
  end
  redis.call('HSET', refs, unpack(fields))
  if #over > 0 then redis.call('HDEL', refs, unpack(over)) end
end

-- with_refs adds to the groups those that still need a message but are no longer
-- registered.
local function with_refs(groups, refs, id)
  local list, known = redis.call('HGET', refs, id), {}
  local parts = parts_in(id, list)
  for _, name in ipairs(groups) do known[name] = true end
  for _, some in ipairs(#parts > 0 and redis.call('HMGET', refs, unpack(parts)) or { list }) do
    for _, name in ipairs(names_in(some)) do
      if not known[name] then groups[#groups + 1] = name end
    end
  end
  return groups
end

-- strike removes a name from a list; nil if no other is left.
local function strike(list, name)
  local text = ',' .. string.sub(list, 2, -2)
  local from, to = string.find(text, name, 1, true)
  if not from then return list end
  text = string.sub(text, 1, from - 1) .. string.sub(text, to + 1)
  if text ~= '' then return '[' .. string.sub(text, 2) .. ']' end
end

-- strike_divided does so in a divided list. It returns what the id has then, nil if no other
-- name is left; and the field of the part with the name, with what it has then, nil for nothing.
local function strike_divided(refs, id, list, name, number)
  local field = id .. '/' .. number
  local part = redis.call('HGET', refs, field)
  local rest = part and strike(part, name)
  if rest then return list, field, rest end
  local numbers = strike(divided(list), ',' .. quoted(number))
  return numbers and '/' .. numbers, field
end

local MOST_REFS = 262144 -- bytes of refs that one call reads

-- leave finds who still needs the messages after a group is done with them. It returns
-- what to write to refs, the ids that nobody needs, how many ids it has looked at, and which
-- parts of lists are empty.
local function leave(refs, ids, group)
  local name, number, known = ',' .. quoted(group), part_of(group), {}
  local left, gone, emptied, looked, size, step = {}, {}, {}, 0, 0, 1
  local function write(field, value)
    left[#left + 1], left[#left + 2] = field, value
  end
  while looked < #ids and size < MOST_REFS do
    local some = { unpack(ids, looked + 1, math.min(looked + step, #ids)) }
    for i, list in ipairs(redis.call('HMGET', refs, unpack(some))) do
      local id, rest = some[i], list and known[list]
      if list then size = size + #list end
      if divided(list) then
        local field, part
        rest, field, part = strike_divided(refs, id, list, name, number)
        if part then write(field, part) else emptied[#emptied + 1] = field end
      elseif list and rest == nil then
        rest = strike(list, name) or false
        known[list] = rest
      end
      if not rest then
        gone[#gone + 1] = id
      elseif rest ~= list then
        write(id, rest)
      end
    end
    looked = looked + #some
    step = size == 0 and 100 or math.max(1, math.min(100, math.floor((MOST_REFS - size) * looked / size)))
  end
  return left, gone, looked, emptied
end

-- finish ends messages for one group. The last group removes the body; a message that
-- only ever had one group has no refs entry. It returns how many messages it has ended:
-- with very many groups, not all.
local function finish(messages, refs, changed, keys, ids, group)
  local left, gone, ended, emptied = {}, ids, #ids, {}
  local several = redis.call('HLEN', refs) > 0
  if several then left, gone, ended, emptied = leave(refs, ids, group) end
  if #left > 0 then redis.call('HSET', refs, unpack(left)) end
  if #emptied > 0 then redis.call('HDEL', refs, unpack(emptied)) end
  if #gone > 0 then
    redis.call('HDEL', messages, unpack(gone))
    if several then redis.call('HDEL', refs, unpack(gone)) end
    if redis.call('HLEN', keys) > 0 then
      for _, id in ipairs(gone) do free(keys, id) end
    end
  end
  if redis.call('HLEN', changed) > 0 then redis.call('HDEL', changed, unpack(ids, 1, ended)) end
  return ended
end

