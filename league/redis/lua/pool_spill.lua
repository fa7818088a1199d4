-- ARGV: ref. Frees the memory of a model whose bytes are on disk; only of a frozen model, which no longer changes.
local model = redis.call('HMGET', model_key(ARGV[1]), 'frozen', 'place')
if model[1] ~= '1' or model[2] ~= 'redis' then return 0 end
redis.call('HSET', model_key(ARGV[1]), 'place', 'disk')
redis.call('UNLINK', data_key(ARGV[1]))
return 1
