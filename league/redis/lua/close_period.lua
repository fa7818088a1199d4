-- ARGV: player, number, learner, steps, model ("player@version"), snapshot, reset, source, source's model, its
-- hyperparameters mutated, reason, by. Snapshot first, then reset: a reset player's last weights are in the league.
local name, number, model, by = ARGV[1], ARGV[2], ARGV[5], ARGV[12]
local player = player_of(name)
if not player then return { 'unknown' } end
if player.period == number and player.is_open ~= '1' then return { 'again', player.start } end
for _, state in ipairs({ 'removed', 'frozen' }) do -- by hand, meanwhile: it is what it was then
  if player[state] == '1' then return { state } end
end
if player.period ~= number or player.learner ~= ARGV[3] then return { 'lost' } end
local steps = whole(math.max(tonumber(player.steps), tonumber(ARGV[4])))
redis.call('HSET', player_key(name), 'steps', steps, 'start', model, 'is_open', '0', 'learner', '', 'deadline', '0')
emit('period_closed', 'player', name, 'number', number, 'steps', steps, 'model', model, 'reason', ARGV[11], 'by', by)
if ARGV[6] == '1' then snapshot(name, player, model, by) end
if ARGV[7] == '1' then
  local generation = new_weights(name, player, '', tonumber(setting('elo_initial')))
  emit('reset', 'player', name, 'generation', generation, 'start', '', 'reason', ARGV[11], 'by', by)
  return { 'reset', '' }
end
if ARGV[8] ~= '' then
  local source = player_of(ARGV[8])
  if source and source.removed ~= '1' then
    redis.call('HSET', player_key(name), 'hyperparameters', ARGV[10])
    local generation = new_weights(name, player, ARGV[9], elo_of(source.slot))
    emit('exploited', 'player', name, 'generation', generation, 'source', ARGV[8], 'start', ARGV[9],
      'before', player.hyperparameters, 'hyperparameters', ARGV[10], 'reason', ARGV[11], 'by', by)
    return { 'exploited', ARGV[9] }
  end
end
return { 'closed', model }
