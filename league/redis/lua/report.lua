-- ARGV: match, outcomes of home ("w", "d", "l", oldest first; with more than two players the place of each), by.
local id, outcomes, by = ARGV[1], ARGV[2], ARGV[3]
local match = hash(P .. 'match:' .. id)
if not match then return refuse(id, by) end
local names = { match.home, match.away }
local generations = { match.home_generation, match.away_generation }
local frozen = { match.home_frozen, match.away_frozen }
if match.others then
  for name in match.others:gmatch('[^,]+') do names[#names + 1] = name end
  for generation in match.other_generations:gmatch('[^,]+') do generations[#generations + 1] = generation end
  for flag in match.other_frozen:gmatch('[^,]+') do frozen[#frozen + 1] = flag end
end

-- Reasons to drop the result: a player was removed, or has changed since the match was issued (by the settings).
local rules, slot_of = {}, {}
for place, name in ipairs(names) do
  local player = redis.call('HMGET', player_key(name), 'removed', 'generation', 'frozen', 'slot')
  slot_of[place] = tonumber(player[4])
  if player[1] == '1' then rules.removed = 'drop' end
  if player[2] ~= generations[place] then rules.reset = setting('on_reset') end
  if player[3] ~= frozen[place] then rules.frozen = setting('on_frozen') end
end
local strange = match.others and '[^0-' .. (#names - 1) .. ']' or '[^wdl]'
if outcomes == '' or outcomes:find(strange) or match.others and #outcomes % #names > 0 then rules.malformed = 'drop' end
for _, reason in ipairs({ 'removed', 'reset', 'frozen', 'malformed' }) do
  if rules[reason] == 'drop' then
    abort(id, reason, by)
    return { 'aborted', reason }
  end
end

local decay, k, ratings = tonumber(setting('decay')), tonumber(setting('elo_k')) / (#names - 1), {}
for _, slot in ipairs(slot_of) do ratings[slot] = ratings[slot] or elo_of(slot) end

-- Counts games between two players; `outcomes` are those of `one`.
local function count_games(one, other, outcomes)
  local wins, draws, losses = read_cell(one, other)
  local back_wins, back_draws, back_losses = read_cell(other, one)
  local rating, rival = ratings[one], ratings[other]
  for i = 1, #outcomes do
    local outcome = outcomes:sub(i, i)
    wins, draws, losses = wins * decay, draws * decay, losses * decay
    back_wins, back_draws, back_losses = back_wins * decay, back_draws * decay, back_losses * decay
    if one == other then -- it won and lost each game against itself: count half of each
      if outcome == 'd' then draws = draws + 1 else wins, losses = wins + 0.5, losses + 0.5 end
    else
      local score = 0.5
      if outcome == 'w' then
        wins, back_losses, score = wins + 1, back_losses + 1, 1
      elseif outcome == 'l' then
        losses, back_wins, score = losses + 1, back_wins + 1, 0
      else
        draws, back_draws = draws + 1, back_draws + 1
      end
      local exponent = math.max(-ELO_RANGE, math.min(ELO_RANGE, (rival - rating) / ELO_SCALE))
      local change = k * (score - 1 / (1 + 10 ^ exponent))
      rating, rival = rating + change, rival - change
    end
  end
  write_cell(one, other, wins, draws, losses)
  if one ~= other then
    write_cell(other, one, back_wins, back_draws, back_losses)
    ratings[one], ratings[other] = rating, rival
    set_elo(one, rating)
    set_elo(other, rival)
  end
end

if not match.others then
  count_games(slot_of[1], slot_of[2], outcomes)
else
  for one = 1, #names - 1 do
    for other = one + 1, #names do
      local between = {} -- per game, the result of `one` against `other`
      for begin = 0, #outcomes - 1, #names do
        local mine, theirs = outcomes:byte(begin + one), outcomes:byte(begin + other)
        between[#between + 1] = mine < theirs and 'w' or mine > theirs and 'l' or 'd'
      end
      count_games(slot_of[one], slot_of[other], table.concat(between))
    end
  end
end
finish(id, 'counted')
count('games', #names == 2 and #outcomes or #outcomes / #names)
-- The event holds the ratings, so that a replay is exact wherever it runs: pow differs between C libraries.
local home_elo, away_elo = exact(ratings[slot_of[1]]), exact(ratings[slot_of[2]])
if not match.others then
  emit('ended', 'match', id, 'as', 'counted', 'outcomes', outcomes, 'home_elo', home_elo, 'away_elo', away_elo, 'by', by)
else
  local elos = {}
  for place = 3, #names do elos[#elos + 1] = exact(ratings[slot_of[place]]) end
  emit('ended', 'match', id, 'as', 'counted', 'outcomes', outcomes, 'home_elo', home_elo, 'away_elo', away_elo, 'by', by,
    'other_elos', table.concat(elos, ','))
end
return { 'counted' }
