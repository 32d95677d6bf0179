-- The steps of a store of node state, each of which Redis carries out as one; see redis.py.
--
-- KEYS: the state of all nodes, the changes of all nodes, then for each node its state and its changes.
-- ARGV: the step, a unique name, the time in ms ("": that of the server), then the arguments of the step.
-- A hash of a node: generation, number, entry, sent_at, stored_number, stored_under. Of all: run, generation, clock.
-- Changes are hashes too: by their name the time in ms from which they do not count.

local step, fresh, now = ARGV[1], ARGV[2], tonumber(ARGV[3])
local all, all_changes = KEYS[1], KEYS[2]
if now == nil then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Ignore all entries if the server has restarted, or is another one, since it may have lost changes.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local seen_run, generation, clock = unpack(redis.call('HMGET', all, 'run', 'generation', 'clock'))
-- Ignore them also if the clock was set back, since their age is unknown then.
if seen_run ~= run or not generation or now < tonumber(clock) then
  generation = fresh
  redis.call('HSET', all, 'run', run, 'generation', fresh)
end
redis.call('HSET', all, 'clock', now)

local function has_changes(key)
  local found = false
  local changes = redis.call('HGETALL', key)
  for place = 1, #changes, 2 do
    if now < tonumber(changes[place + 1]) then
      found = true
    else
      redis.call('HDEL', key, changes[place])
    end
  end
  return found
end

local function is_changing()
  return has_changes(all_changes) or has_changes(KEYS[4])
end

local function generation_of_node()
  local own = redis.call('HGET', KEYS[3], 'generation')
  if not own then
    own = fresh
    redis.call('HSET', KEYS[3], 'generation', own)
  end
  return generation .. ' ' .. own
end

local function is_current(ticket)
  return ticket ~= '' and ticket == generation_of_node()
end

-- Drop the entries of the named nodes, or of all.
local function forget()
  if #KEYS == 2 then
    redis.call('HSET', all, 'generation', fresh)
  end
  for place = 3, #KEYS, 2 do
    redis.call('HSET', KEYS[place], 'generation', fresh)
    redis.call('HDEL', KEYS[place], 'entry')
  end
end

local function note_change(name, ends)
  for place = #KEYS == 2 and 2 or 4, #KEYS, 2 do
    redis.call('HSET', KEYS[place], name, ends)
  end
end

if step == 'find' then
  local entry, sent_at, stored_under = unpack(redis.call('HMGET', KEYS[3], 'entry', 'sent_at', 'stored_under'))
  if not entry or stored_under ~= generation then
    return false
  end
  return {entry, now - tonumber(sent_at)}
elseif step == 'begin_fetch' then
  local entry = redis.call('HGET', KEYS[3], 'entry')
  redis.call('HDEL', KEYS[3], 'entry')
  local number = redis.call('HINCRBY', KEYS[3], 'number', 1)
  return {is_changing() and '' or generation_of_node(), number, entry}
elseif step == 'is_current' then
  return is_current(ARGV[4]) and 1 or 0
elseif step == 'put' then
  local number = tonumber(ARGV[5])
  if not is_current(ARGV[4]) or number < tonumber(redis.call('HGET', KEYS[3], 'stored_number') or 0) then
    return 0
  end
  redis.call('HSET', KEYS[3], 'entry', ARGV[6], 'sent_at', now - tonumber(ARGV[7]), 'stored_number', number,
    'stored_under', generation)
  return 1
elseif step == 'note_change' then
  note_change(ARGV[4], now + tonumber(ARGV[5]))
  forget()
elseif step == 'end_change' then
  for place = #KEYS == 2 and 2 or 4, #KEYS, 2 do
    redis.call('HDEL', KEYS[place], ARGV[4])
  end
  forget()
else
  forget()
end
return 1
