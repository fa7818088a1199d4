-- ARGV: match, home, away, branch, holder, lease in ms.
local match, home, away = ARGV[1], ARGV[2], ARGV[3]
local key = P .. 'match:' .. match
local open = hash(key)
if open then -- the request came twice: the same answer
  return { 'issued', open.home, open.away, open.branch, open.home_generation, open.away_generation, open.home_frozen,
    open.away_frozen, open.deadline }
end
if ended_as(match) then return { 'ended' } end
local one, other = player_of(home), player_of(away)
if not one or one.removed == '1' then return { 'gone', home } end
if not other or other.removed == '1' then return { 'gone', away } end
if one.paused == '1' then return { 'paused', home } end
local deadline = whole(now() + tonumber(ARGV[6]))
redis.call('HSET', key, 'home', home, 'away', away, 'branch', ARGV[4], 'holder', ARGV[5],
  'home_generation', one.generation, 'away_generation', other.generation,
  'home_frozen', one.frozen, 'away_frozen', other.frozen, 'deadline', deadline)
redis.call('ZADD', P .. 'leases', deadline, match)
count('issued')
emit('issued', 'match', match, 'home', home, 'away', away, 'branch', ARGV[4], 'holder', ARGV[5],
  'home_generation', one.generation, 'away_generation', other.generation, 'deadline', deadline)
return { 'issued', home, away, ARGV[4], one.generation, other.generation, one.frozen, other.frozen, deadline }
