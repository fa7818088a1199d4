-- ARGV: player, version, '1' to remove a frozen one too.
local player = ARGV[1]
local ref = player .. '@' .. ARGV[2]
local frozen = redis.call('HGET', model_key(ref), 'frozen')
if not frozen then return 'unknown' end
if frozen == '1' and ARGV[3] ~= '1' then return 'frozen' end
forget(player, ref)
local last = redis.call('ZREVRANGE', P .. 'versions:' .. player, 0, 0, 'WITHSCORES')
if last[1] then
  redis.call('HSET', P .. 'newest', player, string.format('%.0f', last[2]))
else
  redis.call('HDEL', P .. 'newest', player)
end
return 'removed'
