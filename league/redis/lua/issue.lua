-- ARGV: match, home, away, branch, holder, lease in ms, then more opponents, in games of more than two teams.
local match, home, away = ARGV[1], ARGV[2], ARGV[3]
local key = P .. 'match:' .. match
local open = hash(key)
if open then -- the request came twice: give the same answer
  return { 'issued', open.home, open.away, open.branch, open.home_generation, open.away_generation, open.home_frozen,
    open.away_frozen, open.deadline, open.others, open.other_generations, open.other_frozen }
end
if ended_as(match) then return { 'ended' } end
local one, other = player_of(home), player_of(away)
if not one or one.removed == '1' then return { 'gone', home } end
if not other or other.removed == '1' then return { 'gone', away } end
local names, generations, frozen
if #ARGV > 6 then
  names, generations, frozen = {}, {}, {}
  for i = 7, #ARGV do
    local more = player_of(ARGV[i])
    if not more or more.removed == '1' then return { 'gone', ARGV[i] } end
    names[i - 6], generations[i - 6], frozen[i - 6] = ARGV[i], more.generation, more.frozen
  end
  names, generations, frozen = table.concat(names, ','), table.concat(generations, ','), table.concat(frozen, ',')
end
if one.paused == '1' then return { 'paused', home } end
local deadline = whole(now() + tonumber(ARGV[6]))
redis.call('HSET', key, 'home', home, 'away', away, 'branch', ARGV[4], 'holder', ARGV[5],
  'home_generation', one.generation, 'away_generation', other.generation,
  'home_frozen', one.frozen, 'away_frozen', other.frozen, 'deadline', deadline)
redis.call('ZADD', P .. 'leases', deadline, match)
count('issued')
if names then
  redis.call('HSET', key, 'others', names, 'other_generations', generations, 'other_frozen', frozen)
  emit('issued', 'match', match, 'home', home, 'away', away, 'branch', ARGV[4], 'holder', ARGV[5],
    'home_generation', one.generation, 'away_generation', other.generation, 'deadline', deadline,
    'others', names, 'other_generations', generations)
else
  emit('issued', 'match', match, 'home', home, 'away', away, 'branch', ARGV[4], 'holder', ARGV[5],
    'home_generation', one.generation, 'away_generation', other.generation, 'deadline', deadline)
end
return { 'issued', home, away, ARGV[4], one.generation, other.generation, one.frozen, other.frozen, deadline, names,
  generations, frozen }
