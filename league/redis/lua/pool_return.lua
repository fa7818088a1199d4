-- ARGV: ref, key that the bytes were sent to, moment. Brings a spilled model back, unless another process did so first.
if redis.call('HGET', model_key(ARGV[1]), 'place') ~= 'disk' then
  redis.call('UNLINK', ARGV[2])
  return 0
end
redis.call('RENAME', ARGV[2], data_key(ARGV[1]))
redis.call('PERSIST', data_key(ARGV[1]))
redis.call('HSET', model_key(ARGV[1]), 'place', 'redis')
redis.call('ZADD', P .. 'used', ARGV[3], ARGV[1])
return 1
