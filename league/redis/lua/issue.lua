-- ARGV: match, home, away, branch, holder, lease in ms, then more opponents, of games of more than two teams.
local match, home, away = ARGV[1], ARGV[2], ARGV[3]
local key = P .. 'match:' .. match
local function told(open)
  local answer = { 'issued', open.home, open.away, open.branch, open.home_generation, open.away_generation,
    open.home_frozen, open.away_frozen, open.deadline }
  if open.others then
    for _, field in ipairs({ 'others', 'other_generations', 'other_frozen' }) do answer[#answer + 1] = open[field] end
  end
  return answer
end
local open = hash(key)
if open then return told(open) end -- the request came twice: the same answer
if ended_as(match) then return { 'ended' } end
local found, others = {}, { home, away }
for i = 7, #ARGV do others[#others + 1] = ARGV[i] end
for place, name in ipairs(others) do
  found[place] = player_of(name)
  if not found[place] or found[place].removed == '1' then return { 'gone', name } end
end
local one, other = found[1], found[2]
if one.paused == '1' then return { 'paused', home } end
local deadline = whole(now() + tonumber(ARGV[6]))
open = { home = home, away = away, branch = ARGV[4], home_generation = one.generation,
  away_generation = other.generation, home_frozen = one.frozen, away_frozen = other.frozen, deadline = deadline }
redis.call('HSET', key, 'home', home, 'away', away, 'branch', ARGV[4], 'holder', ARGV[5],
  'home_generation', one.generation, 'away_generation', other.generation,
  'home_frozen', one.frozen, 'away_frozen', other.frozen, 'deadline', deadline)
redis.call('ZADD', P .. 'leases', deadline, match)
count('issued')
local issued = { 'match', match, 'home', home, 'away', away, 'branch', ARGV[4], 'holder', ARGV[5],
  'home_generation', one.generation, 'away_generation', other.generation, 'deadline', deadline }
if #found > 2 then
  local names, generations, frozen = {}, {}, {}
  for place = 3, #found do
    names[place - 2], generations[place - 2], frozen[place - 2] = others[place], found[place].generation, found[place].frozen
  end
  open.others, open.other_generations = table.concat(names, ','), table.concat(generations, ',')
  open.other_frozen = table.concat(frozen, ',')
  redis.call('HSET', key, 'others', open.others, 'other_generations', open.other_generations,
    'other_frozen', open.other_frozen)
  for _, field in ipairs({ 'others', 'other_generations' }) do
    issued[#issued + 1] = field
    issued[#issued + 1] = open[field]
  end
end
emit('issued', unpack(issued))
return told(open)
