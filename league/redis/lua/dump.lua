-- Returns the whole live league at one moment: settings, players, payoff rows, Elo by slot, counters, open matches,
-- roster version, and the id of the last event.
local players, rows, ratings, matches = {}, {}, {}, {}
for slot, name in ipairs(redis.call('ZRANGE', P .. 'players', 0, -1)) do
  players[slot] = { name, redis.call('HGETALL', player_key(name)) }
  rows[slot] = redis.call('GET', row_key(slot - 1)) or ''
  ratings[slot] = redis.call('ZSCORE', P .. 'elo', slot - 1)
end
for i, match in ipairs(redis.call('ZRANGE', P .. 'leases', 0, -1)) do
  matches[i] = { match, redis.call('HGETALL', P .. 'match:' .. match) }
end
local last = redis.call('XREVRANGE', P .. 'events', '+', '-', 'COUNT', 1)
return { redis.call('HGETALL', P .. 'settings'), players, rows, ratings, redis.call('HGETALL', P .. 'counters'), matches,
  redis.call('GET', P .. 'roster') or '0', last[1] and last[1][1] or '0-0' }
