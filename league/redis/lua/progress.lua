-- ARGV: player, number of the period, learner, steps, lease in ms. Returns "on", "paused", or why to stop.
local name = ARGV[1]
local player = player_of(name)
if not player then return 'unknown' end
if player.removed == '1' then return 'removed' end
if player.frozen == '1' then return 'frozen' end
if player.is_open ~= '1' or player.period ~= ARGV[2] or player.learner ~= ARGV[3] then return 'lost' end
local steps = whole(math.max(tonumber(player.steps), tonumber(ARGV[4])))
local deadline = whole(now() + tonumber(ARGV[5]))
redis.call('HSET', player_key(name), 'steps', steps, 'deadline', deadline)
emit('progressed', 'player', name, 'steps', steps, 'deadline', deadline)
return player.paused == '1' and 'paused' or 'on'
