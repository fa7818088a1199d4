-- ARGV: name, by, then field and value in turn.
local name, by = ARGV[1], ARGV[2]
local player = player_of(name)
if not player then return { 'unknown' } end
for i = 3, #ARGV, 2 do
  if player[ARGV[i]] ~= ARGV[i + 1] then
    redis.call('HSET', player_key(name), ARGV[i], ARGV[i + 1])
    player[ARGV[i]] = ARGV[i + 1]
    emit('changed', 'name', name, 'field', ARGV[i], 'value', ARGV[i + 1], 'by', by)
    touched(name)
  end
end
return { 'changed' }
