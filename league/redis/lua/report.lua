-- ARGV: match, outcomes of home ("w", "d", "l", oldest first), by.
local id, outcomes, by = ARGV[1], ARGV[2], ARGV[3]
local match = hash(P .. 'match:' .. id)
if not match then return refuse(id, by) end

-- By rule: a result of a player that is not what it was when the match was issued.
local rules = {}
for _, side in ipairs({ 'home', 'away' }) do
  local player = redis.call('HMGET', player_key(match[side]), 'removed', 'generation', 'frozen', 'slot')
  match[side .. '_slot'] = tonumber(player[4])
  if player[1] == '1' then rules.removed = 'drop' end
  if player[2] ~= match[side .. '_generation'] then rules.reset = setting('on_reset') end
  if player[3] ~= match[side .. '_frozen'] then rules.frozen = setting('on_frozen') end
end
for _, reason in ipairs({ 'removed', 'reset', 'frozen' }) do
  if rules[reason] == 'drop' then
    abort(id, reason, by)
    return { 'aborted', reason }
  end
end

local one, other = match.home_slot, match.away_slot
local decay = tonumber(setting('decay'))
local wins, draws, losses = read_cell(one, other)
local back_wins, back_draws, back_losses = read_cell(other, one)
local rating, rival = elo_of(one), elo_of(other)
local k = tonumber(setting('elo_k'))
for i = 1, #outcomes do
  local outcome = outcomes:sub(i, i)
  wins, draws, losses = wins * decay, draws * decay, losses * decay
  back_wins, back_draws, back_losses = back_wins * decay, back_draws * decay, back_losses * decay
  if one == other then -- it won and lost each game against itself: half of each
    if outcome == 'd' then draws = draws + 0.5 + 0.5 else wins, losses = wins + 0.5, losses + 0.5 end
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
  set_elo(one, rating)
  set_elo(other, rival)
end
finish(id, 'counted')
count('games', #outcomes)
-- The ratings go along, so that a replay is exact wherever it runs: pow differs between C libraries.
emit('ended', 'match', id, 'as', 'counted', 'outcomes', outcomes, 'home_elo', exact(rating),
  'away_elo', exact(one == other and rating or rival), 'by', by)
return { 'counted' }
