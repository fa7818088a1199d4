-- ARGV: holder, lease in ms, the cell that it held before ("" for none), then cells, the most wanted first, each
-- "slot in seat 0:slot in seat 1". Takes the first cell that nobody else holds; returns it, or false if all are held.
-- A lease is a key that Redis deletes when it runs out, so nobody has to free the cell of a dead evaluator.
local holder, before = ARGV[1], ARGV[3]
local function key(cell) return P .. 'cell:' .. cell end
local taken = false
for i = 4, #ARGV do
  local held = redis.call('GET', key(ARGV[i]))
  if not held or held == holder then
    redis.call('SET', key(ARGV[i]), holder, 'PX', ARGV[2])
    taken = ARGV[i]
    break
  end
end
if before ~= '' and before ~= taken and redis.call('GET', key(before)) == holder then redis.call('DEL', key(before)) end
return taken
