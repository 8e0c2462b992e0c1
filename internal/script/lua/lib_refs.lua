-- lib_refs.lua: which groups still need a message that was given to several. It follows lib.lua
-- in front of the scripts that have refs among their KEYS.
--
-- refs has the names of these groups, as a JSON array, under the id of the message. A group that no
-- longer needs the message removes its name.

-- json_of returns a name as JSON without commas, so each comma in the list separates two names.
local function json_of(name)
  return (string.gsub(cjson.encode(name), ',', '\\u002c'))
end

local function list_of(names)
  local list = {}
  for i, name in ipairs(names) do list[i] = json_of(name) end
  return '[' .. table.concat(list, ',') .. ']'
end

-- names_in returns the names in a list; none if it is garbled.
local function names_in(list)
  local ok, names = pcall(cjson.decode, list or '[]')
  return ok and type(names) == 'table' and names or {}
end

-- with_refs adds to the groups those that still need a message but are no longer
-- registered.
local function with_refs(groups, refs, id)
  local known = {}
  for _, name in ipairs(groups) do known[name] = true end
  for _, name in ipairs(names_in(redis.call('HGET', refs, id))) do
    if not known[name] then groups[#groups + 1] = name end
  end
  return groups
end
