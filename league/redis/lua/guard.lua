-- Between the library and every script that changes a league: there has to be one, whole.
if redis.call('EXISTS', P .. 'ready') == 0 then
  return redis.error_reply('NOLEAGUE Redis holds no league that is ready; the league worker with league_id=0 creates it, '
    .. 'or brings it back from its folder')
end
