-- ARGV: writer, its number of this call (from 1), "once" if a cell with games gets no more, else "always"; then for
-- each cell: slot in seat 0, slot in seat 1, the sums to add (games, sum of returns, sum of their squares, float64
-- little-endian). Returns the cells as they are after that.
-- A call whose answer was lost is sent again with its number, and adds nothing the second time.
local seen, cells = P .. 'returns:seen:' .. ARGV[1], {}
local is_new = tonumber(ARGV[2]) > tonumber(redis.call('GET', seen) or '0')
local version = is_new and redis.call('INCR', P .. 'returns:version')
for at = 4, #ARGV, 3 do
  local field = ARGV[at] .. ':' .. ARGV[at + 1]
  local held = redis.call('HGET', P .. 'returns', field)
  local raw = held or struct.pack('<ddd', 0, 0, 0)
  if is_new and not (held and ARGV[3] == 'once') then
    local games, total, squares = struct.unpack('<ddd', raw)
    local more_games, more_total, more_squares = struct.unpack('<ddd', ARGV[at + 2])
    raw = struct.pack('<ddd', games + more_games, total + more_total, squares + more_squares)
    redis.call('HSET', P .. 'returns', field, raw)
    redis.call('ZADD', P .. 'returns:changes', version, field)
  end
  cells[#cells + 1] = raw
end
if is_new then redis.call('SET', seen, ARGV[2], 'PX', 3600000) end
return cells
