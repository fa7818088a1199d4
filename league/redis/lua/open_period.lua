-- ARGV: player, learner, lease in ms.
local name, learner = ARGV[1], ARGV[2]
local player = player_of(name)
if not player then return { 'unknown' } end
for _, state in ipairs({ 'removed', 'frozen', 'paused' }) do
  if player[state] == '1' then return { state } end
end
local at = now()
local number = tonumber(player.period)
if player.is_open == '1' then -- its own, or that of a learner that went silent: the same period goes on
  if player.learner ~= learner and tonumber(player.deadline) > at then return { 'busy', player.learner } end
else
  number = number + 1
end
local deadline = whole(at + tonumber(ARGV[3]))
redis.call('HSET', player_key(name), 'period', number, 'is_open', '1', 'learner', learner, 'deadline', deadline)
emit('period_opened', 'player', name, 'number', number, 'learner', learner, 'deadline', deadline)
return { 'opened', whole(number), player.start, player.initial, player.rules, player.hyperparameters, player.steps,
  player.generation, deadline, player.closed_steps or '0' }
