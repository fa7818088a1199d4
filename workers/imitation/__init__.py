"""Behaviour cloning of recorded games: `python -m workers.imitate`.

`data` finds the games and fits them to a policy, `feed` turns them into the trajectories of updates, `evaluation`
measures the clone, and `run` is the whole run: one process, without servers.
"""
