-- lib_finish.lua: ends messages for a group: the group no longer needs them, and the last group
-- removes the body. It follows lib_refs.lua in front of the scripts that do so.

-- remove_name removes a name, with the comma in front of it, from a list; nil if no other is left.
local function remove_name(list, name)
  local text = ',' .. string.sub(list, 2, -2)
  local from, to = string.find(text, name, 1, true)
  if not from then return list end
  text = string.sub(text, 1, from - 1) .. string.sub(text, to + 1)
  if text ~= '' then return '[' .. string.sub(text, 2) .. ']' end
end

-- release_refs removes a group's name from the lists of messages, and returns the ids of messages
-- that no group needs any more.
local function release_refs(refs, ids, group)
  local name, fields, unneeded, rest_of = ',' .. json_of(group), {}, {}, {}
  for i, list in ipairs(redis.call('HMGET', refs, unpack(ids))) do
    if list and rest_of[list] == nil then -- most messages have the same list
      rest_of[list] = remove_name(list, name) or false
    end
    local rest = list and rest_of[list]
    if not rest then
      unneeded[#unneeded + 1] = ids[i]
    elseif rest ~= list then
      fields[#fields + 1], fields[#fields + 2] = ids[i], rest
    end
  end
  if #fields > 0 then redis.call('HSET', refs, unpack(fields)) end
  return unneeded
end

-- finish ends messages for one group. A message that only ever had one group has no refs.
local function finish(messages, refs, nack_metadata, keys, ids, group)
  local several = redis.call('HLEN', refs) > 0
  local unneeded = several and release_refs(refs, ids, group) or ids
  if #unneeded > 0 then
    redis.call('HDEL', messages, unpack(unneeded))
    if several then redis.call('HDEL', refs, unpack(unneeded)) end
    if redis.call('HLEN', keys) > 0 then
      for _, id in ipairs(unneeded) do free(keys, id) end
    end
  end
  if redis.call('HLEN', nack_metadata) > 0 then redis.call('HDEL', nack_metadata, unpack(ids)) end
end
