-- ARGV: how many at most, so that a backlog never blocks the server for long. Returns how many were freed.
local due = redis.call('ZRANGEBYSCORE', P .. 'leases', '-inf', whole(now()), 'LIMIT', 0, tonumber(ARGV[1]))
for _, match in ipairs(due) do
  finish(match, 'expired')
  emit('ended', 'match', match, 'as', 'expired')
end
return #due
