-- ARGV: setting and value in turn. Creates the league, or returns its settings if it exists.
local found = hash(P .. 'settings')
if not found then
  redis.call('HSET', P .. 'settings', unpack(ARGV))
  emit('created', unpack(ARGV))
end
return redis.call('HGETALL', P .. 'settings')
