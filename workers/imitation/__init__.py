"""Behaviour cloning of recorded games: `python -m workers.imitate`.

`data` finds the games and fits them to a policy, `feed` makes the trajectories of updates of them, `evaluation` plays
with the clone, `run` puts it together: one process, without servers.
"""
