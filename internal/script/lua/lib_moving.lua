-- lib_moving.lua: what the scripts share that have moving among their KEYS. It follows lib.lua
-- in front of them.

-- An entry of moving is JSON: "to" and "partition", where the message is moved to; "batch", which
-- goes on with it; "move", the batch that has taken it out, which names the move; "since", in ms,
-- and "over", when another batch has taken it over; "place", "group" and "score", where it was; and
-- "key", what it had in keys if that was freed: 'held' or 'lost'.

-- move_of reads an entry; nil if there is none, or if it is garbled.
local function move_of(entry)
  local whole, move = pcall(cjson.decode, entry or '')
  if whole and type(move) == 'table' then return move end
end

-- moved_from tells whether an entry takes a message away from a group, or from all.
local function moved_from(entry, group)
  if not entry then return false end
  local move = move_of(entry)
  return not move or move.group == '' or move.group == group
end

-- moved_by tells whether a batch has written an entry.
local function moved_by(entry, batch)
  local move = move_of(entry)
  return move and move.batch == batch
end
