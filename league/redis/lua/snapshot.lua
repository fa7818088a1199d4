-- ARGV: player, model ("player@version"), by.
local player = player_of(ARGV[1])
if not player then return { 'unknown' } end
if player.frozen == '1' then return { 'frozen' } end
if snapshot(ARGV[1], player, ARGV[2], ARGV[3]) then return { 'added' } end
return { 'exists' }
