-- ARGV: player, version, key that the bytes were sent to, step, created, checksum, size, parent, versions kept.
-- The bytes came by a plain SET: renaming their key moves nothing, while an argument of a script would be copied twice.
-- A late writer (a learner that was taken for dead) never replaces newer weights.
local player, version, sent = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local ref = player .. '@' .. ARGV[2]
local newest = redis.call('HGET', P .. 'newest', player)
if newest and tonumber(newest) >= version then
  redis.call('UNLINK', sent)
  return 0
end
redis.call('RENAME', sent, data_key(ref))
redis.call('PERSIST', data_key(ref))
redis.call('HSET', model_key(ref), 'player', player, 'version', ARGV[2], 'step', ARGV[4], 'created', ARGV[5],
  'checksum', ARGV[6], 'size', ARGV[7], 'parent', ARGV[8], 'frozen', '0', 'place', 'redis')
redis.call('HSET', P .. 'newest', player, ARGV[2])
redis.call('ZADD', P .. 'versions:' .. player, version, ref)
redis.call('ZADD', P .. 'live:' .. player, version, ref)
for _, old in ipairs(redis.call('ZRANGE', P .. 'live:' .. player, 0, -1 - tonumber(ARGV[9]))) do
  forget(player, old)
end
return 1
