-- ARGV: player, version, moment, who keeps it ("hand", or "league" for as long as a player needs it). Makes the model
-- immutable, and wakes the keeper to save it.
local ref = ARGV[1] .. '@' .. ARGV[2]
local frozen = redis.call('HGET', model_key(ref), 'frozen')
if not frozen then return 0 end
if frozen == '0' then
  redis.call('HSET', model_key(ref), 'frozen', '1')
  redis.call('ZREM', P .. 'live:' .. ARGV[1], ref)
  redis.call('ZADD', P .. 'used', ARGV[3], ref)
  redis.call('RPUSH', P .. 'wanted', '')
end
redis.call('HSET', model_key(ref), 'frozen_at', ARGV[3])
if redis.call('HGET', model_key(ref), 'kept_by') ~= 'hand' then redis.call('HSET', model_key(ref), 'kept_by', ARGV[4]) end
return 1
