-- ARGV: ref, then attribute and value (JSON) in turn.
if redis.call('EXISTS', model_key(ARGV[1])) == 0 then return 0 end
for i = 2, #ARGV, 2 do redis.call('HSET', model_key(ARGV[1]), 'a:' .. ARGV[i], ARGV[i + 1]) end
return 1
