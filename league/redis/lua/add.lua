-- ARGV: name, kind, config, model, initial, frozen, rules, hyperparameters, by.
local name = ARGV[1]
if redis.call('EXISTS', player_key(name)) == 1 then return { 'exists' } end
local slot = enter(name, {
  kind = ARGV[2], config = ARGV[3], parent = '', model = ARGV[4], initial = ARGV[5], frozen = ARGV[6],
  rules = ARGV[7], hyperparameters = ARGV[8], elo = tonumber(setting('elo_initial')),
}, ARGV[9])
return { 'added', slot }
