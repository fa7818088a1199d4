-- ARGV: setting and value in turn. Creates the league, or answers its settings where it exists.
local found = hash(P .. 'settings')
if not found then
  redis.call('HSET', P .. 'settings', unpack(ARGV))
  emit('created', unpack(ARGV))
end
return redis.call('HGETALL', P .. 'settings')
