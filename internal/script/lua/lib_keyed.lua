-- lib_keyed.lua: functions of cancel, reschedule and locate. It follows lib_groups.lua in front of
-- them.

-- find_by_key returns the message that a key leads to: the one that holds it or, until another takes it,
-- the dead message that has lost it. An id without a body does not count: it was left by a torn
-- append-only file (docs/use/reliability.md) or another program.
local function find_by_key(keys, messages, key)
  local id = redis.call('HGET', keys, key)
  if id and string.sub(id, 1, 1) == DEAD_MARK then id = string.sub(id, 2) end
  return id and redis.call('HEXISTS', messages, id) == 1 and id
end

-- find_message returns the message that a caller names by its key or its id.
local function find_message(messages, keys, by, name)
  if by == 'key' then return find_by_key(keys, messages, name) end
  return redis.call('HEXISTS', messages, name) == 1 and name
end

-- current_key_of returns the key that leads to a message; nil if it has none, or has lost it to another message.
local function current_key_of(messages, keys, id)
  local key = key_of(id)
  return key and find_by_key(keys, messages, key) == id and key or nil
end

-- state_of returns the state of a message in a group, from its scores in queue, unack and dead and
-- its entry; nil if it is in none of them.
local function state_of(waits, held, buried, entry)
  if held then return 'in-delivery' end
  if waits then
    local _, seen, unsure = split(entry or '')
    return seen + unsure > 0 and 'retrying' or 'queued'
  end
  return buried and 'dead' or nil
end

-- relevant_groups returns the groups that may need a message: registered groups, and groups that refs names. A caller may also
-- name a group that has ended but still has its sets; it is not relevant.
local function relevant_groups(groups, refs, id)
  local names, set = with_refs(redis.call('SMEMBERS', groups), refs, id), {}
  for _, name in ipairs(names) do set[name] = true end
  return names, set
end

-- with_done completes a result that has groups and states from the fourth value on: it adds, as 'done', the groups that need
-- nothing of the message any more. While a message is scheduled, there are none.
local function with_done(found, names, scheduled)
  local needing = {}
  for i = 4, #found, 2 do needing[found[i]] = true end
  for _, name in ipairs(scheduled and {} or names) do
    if not needing[name] then
      found[#found + 1] = name
      found[#found + 1] = 'done'
    end
  end
  return found
end

-- has_unnamed_group reports whether the caller does not name, in ARGV[from..], a group that may have a
-- message. These are the groups that refs names. If refs names none, and the message is neither in
-- scheduled nor in a set of a named group, they are all registered groups. The first three keys of
-- each named group are its sets.
local function has_unnamed_group(groups, refs, scheduled, id, from)
  local named = {}
  for i = from, #ARGV do named[ARGV[i]] = true end
  local function has_it()
    if redis.call('ZSCORE', scheduled, id) then return true end
    for i = EACH_FROM, #KEYS, EACH_WIDTH do
      for j = i, i + 2 do
        if redis.call('ZSCORE', KEYS[j], id) then return true end
      end
    end
    return false
  end
  local holders = with_refs({}, refs, id)
  if #holders == 0 and not has_it() then holders = redis.call('SMEMBERS', groups) end
  for _, name in ipairs(holders) do
    if not named[name] then return true end
  end
  return false
end
