-- lib_refs.lua: which groups still need a message that was given to several. It follows lib.lua
-- in front of the scripts that have refs among their KEYS.
--
-- refs has, under the id of such a message, the names of these groups, as a JSON array. Each
-- group that is done takes its own out. More than MANY_NAMES names are divided into parts: the id
-- then has "/" and an array of numbers, as text, and id/number has the names whose hash gives this number.

local MANY_NAMES = 64
local PARTS = 32

-- part_of is the number of the part that has a name.
local function part_of(name)
  return string.format('%d', tonumber(string.sub(redis.sha1hex(name), 1, 4), 16) % PARTS)
end

-- json_of is a name as refs has it. It contains no comma, so each comma in the list
-- separates two names.
local function json_of(name)
  return (string.gsub(cjson.encode(name), ',', '\\u002c'))
end

local function list_of(names)
  local list = {}
  for i, name in ipairs(names) do list[i] = json_of(name) end
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
