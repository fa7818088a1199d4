-- ARGV: match, reason, by.
if redis.call('EXISTS', P .. 'match:' .. ARGV[1]) == 0 then return refuse(ARGV[1], ARGV[3]) end
abort(ARGV[1], ARGV[2], ARGV[3])
return { 'aborted', ARGV[2] }
