-- ARGV: writer, its number of this call (from 1), slot in seat 0, slot in seat 1, what is added: games, sum of returns,
-- sum of their squares, float64 little-endian. Answers the cell as it is then.
-- A call whose answer got lost is sent again with its number, and adds nothing the second time.
local field, seen = ARGV[3] .. ':' .. ARGV[4], P .. 'returns:seen:' .. ARGV[1]
local raw = redis.call('HGET', P .. 'returns', field) or struct.pack('<ddd', 0, 0, 0)
if tonumber(ARGV[2]) <= tonumber(redis.call('GET', seen) or '0') then return raw end
local games, total, squares = struct.unpack('<ddd', raw)
local more_games, more_total, more_squares = struct.unpack('<ddd', ARGV[5])
raw = struct.pack('<ddd', games + more_games, total + more_total, squares + more_squares)
redis.call('HSET', P .. 'returns', field, raw)
redis.call('ZADD', P .. 'returns:changes', redis.call('INCR', P .. 'returns:version'), field)
redis.call('SET', seen, ARGV[2], 'PX', 3600000)
return raw
