"""Matches of a league, recorded by rule and played again: `python -m workers.replay`.

`match_record` defines a record, `rebuild` plays it again, `folder` keeps records on disk within a bound, and `sending`
brings them there. Other packages use these. `league.replay` is something else: the league's state, folded from its
events.
"""
