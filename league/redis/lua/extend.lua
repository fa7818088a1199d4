-- ARGV: match, lease in ms.
local key = P .. 'match:' .. ARGV[1]
if redis.call('EXISTS', key) == 0 then return 0 end
local deadline = whole(now() + tonumber(ARGV[2]))
redis.call('HSET', key, 'deadline', deadline)
redis.call('ZADD', P .. 'leases', deadline, ARGV[1])
emit('extended', 'match', ARGV[1], 'deadline', deadline)
return 1
