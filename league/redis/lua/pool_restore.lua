-- ARGV: player, version, key that the bytes were sent to, step, created, checksum, size, parent, frozen, who keeps it,
-- then attribute and value (JSON) in turn. Adds a model of a snapshot, whatever else the pool holds; returns the
-- checksum of the model that the pool then holds.
local player, version, sent = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local ref = player .. '@' .. ARGV[2]
local held = redis.call('HGET', model_key(ref), 'checksum')
if held then
  redis.call('UNLINK', sent)
  return held
end
redis.call('RENAME', sent, data_key(ref))
redis.call('PERSIST', data_key(ref))
redis.call('HSET', model_key(ref), 'player', player, 'version', ARGV[2], 'step', ARGV[4], 'created', ARGV[5],
  'checksum', ARGV[6], 'size', ARGV[7], 'parent', ARGV[8], 'frozen', ARGV[9], 'place', 'redis')
if ARGV[9] == '1' then redis.call('HSET', model_key(ref), 'kept_by', ARGV[10], 'frozen_at', ARGV[5]) end
for i = 11, #ARGV, 2 do redis.call('HSET', model_key(ref), 'a:' .. ARGV[i], ARGV[i + 1]) end
redis.call('ZADD', P .. 'versions:' .. player, version, ref)
if ARGV[9] == '1' then
  redis.call('ZADD', P .. 'used', ARGV[5], ref)
else
  redis.call('ZADD', P .. 'live:' .. player, version, ref)
end
local newest = redis.call('HGET', P .. 'newest', player)
if not newest or tonumber(newest) < version then redis.call('HSET', P .. 'newest', player, ARGV[2]) end
return ARGV[6]
