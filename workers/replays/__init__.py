"""Matches of a league, recorded by rule and played again: `python -m workers.replay`.

`recorded` is what a record holds, `rebuild` plays it again, `folder` keeps records on disk within a bound, `sending`
brings them there. Others take these; `league.replay` is something else: the league's state, folded from its events.
"""
