-- Begins every script: the league's keys, its clock, its stream, its counters and its payoff.
-- KEYS[1] is the prefix of all keys of the league. league/state/decide.py decides everything here in the same way, and
-- league/state/league_state.py folds it back from the stream. Constants that both need (CELL, KEPT_ENDED, ELO_SCALE,
-- ELO_RANGE) are put before this text by league/redis/scripts.py.

local P = KEYS[1]

local function now() -- ms
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function whole(number) return string.format('%.0f', number) end
local function exact(number) return string.format('%.17g', number) end

local function emit(event, ...)
  return redis.call('XADD', P .. 'events', '*', 'event', event, ...)
end

local function count(what, by)
  redis.call('HINCRBY', P .. 'counters', what, by or 1)
end

local function hash(key) -- returns a table of its fields, nil if there is no such key
  local flat = redis.call('HGETALL', key)
  if #flat == 0 then return nil end
  local fields = {}
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  return fields
end

local function player_key(name) return P .. 'player:' .. name end
local function player_of(name) return hash(player_key(name)) end
local function setting(name) return redis.call('HGET', P .. 'settings', name) end
local function slots() return tonumber(redis.call('ZCARD', P .. 'players')) end

local function touched(name) -- records a change of the roster, so that league workers read this player again
  local version = redis.call('INCR', P .. 'roster')
  redis.call('ZADD', P .. 'changes', version, name)
  local time = redis.call('TIME') -- tells this change from one of its version made after a crash undid this one
  redis.call('HSET', player_key(name), 'changed_at', time[1] .. '.' .. time[2])
end

local function elo_of(slot) return tonumber(redis.call('ZSCORE', P .. 'elo', slot)) end
local function set_elo(slot, rating) redis.call('ZADD', P .. 'elo', exact(rating), slot) end

local function row_key(slot) return P .. 'payoff:' .. whole(slot) end

local function read_cell(row, column)
  local raw = redis.call('GETRANGE', row_key(row), column * CELL, column * CELL + CELL - 1)
  if #raw < CELL then return 0, 0, 0 end
  local wins, draws, losses = struct.unpack('<ddd', raw)
  return wins, draws, losses
end

local function write_cell(row, column, wins, draws, losses)
  redis.call('SETRANGE', row_key(row), column * CELL, struct.pack('<ddd', wins, draws, losses))
end

local function clear_payoff(slot)
  redis.call('DEL', row_key(slot))
  local nothing = string.rep('\0', CELL)
  for other = 0, slots() - 1 do
    if redis.call('STRLEN', row_key(other)) > slot * CELL then
      redis.call('SETRANGE', row_key(other), slot * CELL, nothing)
    end
  end
end

local function copy_payoff(source, target)
  for other = 0, slots() - 1 do
    if other ~= source and other ~= target then
      local wins, draws, losses = read_cell(source, other)
      if wins + draws + losses > 0 then
        write_cell(target, other, wins, draws, losses)
        write_cell(other, target, losses, draws, wins)
      end
    end
  end
end

-- Adds a player; `fields` holds kind, config, parent, model, initial, frozen, rules, hyperparameters, elo.
local function enter(name, fields, by)
  local slot = slots()
  redis.call('ZADD', P .. 'players', slot, name)
  redis.call('HSET', player_key(name), 'slot', slot, 'kind', fields.kind, 'config', fields.config,
    'parent', fields.parent, 'model', fields.model, 'initial', fields.initial, 'frozen', fields.frozen,
    'paused', '0', 'removed', '0', 'generation', '0', 'rules', fields.rules,
    'hyperparameters', fields.hyperparameters, 'steps', '0', 'snapshot_steps', '0', 'period', '0', 'is_open', '0',
    'learner', '', 'deadline', '0', 'start', '', 'closed_steps', '0', 'closed_as', '', 'closed_snapshot', '0',
    'closed_source', '', 'closed_reason', '')
  set_elo(slot, fields.elo)
  emit('added', 'name', name, 'slot', slot, 'kind', fields.kind, 'config', fields.config, 'parent', fields.parent,
    'model', fields.model, 'initial', fields.initial, 'frozen', fields.frozen, 'rules', fields.rules,
    'hyperparameters', fields.hyperparameters, 'elo', exact(fields.elo), 'by', by)
  touched(name)
  return slot
end

-- Adds a frozen copy of a learning player, as it is at `model`, unless there is one already.
local function snapshot(name, player, model, by)
  if redis.call('EXISTS', player_key(model)) == 1 then return false end
  local slot = enter(model, {
    kind = player.kind, config = player.config, parent = name, model = model, initial = '', frozen = '1',
    rules = player.rules, hyperparameters = player.hyperparameters, elo = elo_of(player.slot),
  }, by)
  if setting('snapshots_inherit') == '1' then copy_payoff(tonumber(player.slot), slot) end
  redis.call('HSET', player_key(name), 'snapshot_steps', redis.call('HGET', player_key(name), 'steps'))
  return true
end

-- Records that the player has other weights from now on: results of the old ones no longer count.
local function new_weights(name, player, start, elo)
  local generation = redis.call('HINCRBY', player_key(name), 'generation', 1)
  redis.call('HSET', player_key(name), 'start', start)
  clear_payoff(tonumber(player.slot))
  set_elo(player.slot, elo)
  touched(name)
  return generation
end

-- Removes an open match and remembers for a while how it ended, to tell a late result from one never asked for.
local function finish(match, as)
  local newer, older = P .. 'ended:newer', P .. 'ended:older'
  redis.call('DEL', P .. 'match:' .. match)
  redis.call('ZREM', P .. 'leases', match)
  if redis.call('HLEN', newer) >= KEPT_ENDED then
    redis.call('UNLINK', older)
    redis.call('RENAME', newer, older)
    redis.call('PEXPIRE', older, whole(setting('memory') * 1000))
  end
  redis.call('HSET', newer, match, as)
  count(as)
end

local function ended_as(match)
  return redis.call('HGET', P .. 'ended:newer', match) or redis.call('HGET', P .. 'ended:older', match)
end

local function abort(match, reason, by)
  finish(match, 'aborted')
  count('aborted:' .. reason)
  emit('ended', 'match', match, 'as', 'aborted', 'reason', reason, 'by', by)
end

-- Refuses a result of a match that is not open: it ended before, or was never issued.
local function refuse(match, by)
  local ended = ended_as(match)
  local reason = 'unknown'
  if ended == 'counted' then reason = 'duplicate' elseif ended then reason = 'late' end
  count('refused:' .. reason)
  emit('refused', 'match', match, 'reason', reason, 'by', by)
  return { 'refused', reason }
end
