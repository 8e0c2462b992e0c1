-- lib_finish.lua: how a group ends messages: it releases their refs, and the last group removes
-- the body. It follows lib_refs.lua in front of the scripts that do so.

-- remove_name removes a name, with the comma in front of it, from a list; nil if no other is left.
local function remove_name(list, name)
  local text = ',' .. string.sub(list, 2, -2)
  local from, to = string.find(text, name, 1, true)
  if not from then return list end
  text = string.sub(text, 1, from - 1) .. string.sub(text, to + 1)
  if text ~= '' then return '[' .. string.sub(text, 2) .. ']' end
end

-- remove_from_part removes a name from its part of a divided list. It returns what the id has then,
-- nil if no other name is left; and the field of the part, with what it has then, nil for nothing.
local function remove_from_part(refs, id, list, name, number)
  local field = id .. '/' .. number
  local part = redis.call('HGET', refs, field)
  local rest = part and remove_name(part, name)
  if rest then return list, field, rest end
  local numbers = remove_name(divided(list), ',' .. json_of(number))
  return numbers and '/' .. numbers, field
end

local MAX_BYTES = 262144 -- of refs that one call reads

-- plan_release reads who still needs messages after a group has released them. It returns the
-- fields to write to refs, the empty parts of lists to remove, the ids that nobody needs, and how
-- many of the messages it has come to before it had read too much. The sizes of the lists that it
-- has read say how many more it may read at once.
local function plan_release(refs, ids, group)
  local name, number, rest_of = ',' .. json_of(group), part_of(group), {}
  local plan, fields, bytes, step = { fields = {}, empty = {}, unneeded = {}, count = 0 }, {}, 0, 1
  fields = plan.fields
  while plan.count < #ids and bytes < MAX_BYTES do
    local some = { unpack(ids, plan.count + 1, math.min(plan.count + step, #ids)) }
    for i, list in ipairs(redis.call('HMGET', refs, unpack(some))) do
      local id, rest = some[i], list and rest_of[list]
      if list then bytes = bytes + #list end
      if divided(list) then
        local field, part
        rest, field, part = remove_from_part(refs, id, list, name, number)
        if part then
          fields[#fields + 1], fields[#fields + 2] = field, part
        else
          table.insert(plan.empty, field)
        end
      elseif list and rest == nil then -- most messages have the same list
        rest = remove_name(list, name) or false
        rest_of[list] = rest
      end
      if not rest then
        table.insert(plan.unneeded, id)
      elseif rest ~= list then
        fields[#fields + 1], fields[#fields + 2] = id, rest
      end
    end
    plan.count = plan.count + #some
    step = bytes == 0 and 100 or math.max(1, math.min(100, math.floor((MAX_BYTES - bytes) * plan.count / bytes)))
  end
  return plan
end

-- finish ends messages for one group. A message that only ever had one group has no refs. It
-- returns how many messages it has ended: with very many groups, not all.
local function finish(messages, refs, changed, keys, ids, group)
  local several = redis.call('HLEN', refs) > 0
  local plan = several and plan_release(refs, ids, group) or { fields = {}, empty = {}, unneeded = ids, count = #ids }
  if #plan.fields > 0 then redis.call('HSET', refs, unpack(plan.fields)) end
  if #plan.empty > 0 then redis.call('HDEL', refs, unpack(plan.empty)) end
  if #plan.unneeded > 0 then
    redis.call('HDEL', messages, unpack(plan.unneeded))
    if several then redis.call('HDEL', refs, unpack(plan.unneeded)) end
    if redis.call('HLEN', keys) > 0 then
      for _, id in ipairs(plan.unneeded) do free(keys, id) end
    end
  end
  if redis.call('HLEN', changed) > 0 then redis.call('HDEL', changed, unpack(ids, 1, plan.count)) end
  return plan.count
end
