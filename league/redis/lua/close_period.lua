-- ARGV: player, number, learner, steps, model ("player@version"), snapshot, reset, source, source's model, its
-- hyperparameters mutated, reason, by, the models of snapshots. Takes snapshots first, then resets, so that a reset
-- player's last weights are in the league.
local name, number, model, by = ARGV[1], ARGV[2], ARGV[5], ARGV[12]
local player = player_of(name)
if not player then return { 'unknown' } end
if player.period == number and player.is_open ~= '1' then
  return { 'again', player.start, player.closed_as, player.closed_snapshot, player.closed_source, player.closed_reason }
end
for _, state in ipairs({ 'removed', 'frozen' }) do -- by hand, meanwhile: the period ends without effect
  if player[state] == '1' then return { state } end
end
if player.period ~= number or player.learner ~= ARGV[3] then return { 'lost' } end
local steps = whole(math.max(tonumber(player.steps), tonumber(ARGV[4])))
local taken, reason, as, source = ARGV[6], ARGV[11], 'closed', nil
if ARGV[7] == '1' then
  as = 'reset'
elseif ARGV[8] ~= '' then
  source = player_of(ARGV[8])
  if source and source.removed ~= '1' then as = 'exploited' end
end
local from = as == 'exploited' and ARGV[8] or ''
local start = as == 'reset' and '' or as == 'exploited' and ARGV[9] or model
-- The outcome is kept with the player: a learner whose answer was lost asks again.
redis.call('HSET', player_key(name), 'steps', steps, 'closed_steps', steps, 'start', model, 'is_open', '0', 'learner', '',
  'deadline', '0', 'closed_as', as, 'closed_snapshot', taken, 'closed_source', from, 'closed_reason', reason)
emit('period_closed', 'player', name, 'number', number, 'steps', steps, 'model', model, 'as', as, 'snapshot', taken,
  'source', from, 'reason', reason, 'by', by)
for taken_model = 13, taken == '1' and #ARGV or 12 do snapshot(name, player, ARGV[taken_model], by) end
if as == 'reset' then
  local generation = new_weights(name, player, start, tonumber(setting('elo_initial')))
  emit('reset', 'player', name, 'generation', generation, 'start', start, 'reason', reason, 'by', by)
elseif as == 'exploited' then
  redis.call('HSET', player_key(name), 'hyperparameters', ARGV[10])
  local generation = new_weights(name, player, start, elo_of(source.slot))
  emit('exploited', 'player', name, 'generation', generation, 'source', from, 'start', start,
    'before', player.hyperparameters, 'hyperparameters', ARGV[10], 'reason', reason, 'by', by)
end
return { as, start, as, taken, from, reason }
