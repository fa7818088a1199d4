-- Stands between the library and every script that changes a league: fails unless there is a league that is ready.
if redis.call('EXISTS', P .. 'ready') == 0 then
  return redis.error_reply('NOLEAGUE Redis holds no league that is ready; the league worker with league_id=0 creates it, '
    .. 'or brings it back from its folder')
end
