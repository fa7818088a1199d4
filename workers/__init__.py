"""The processes: thin entries, one per role, over packages that put tasks, league, agents and envs together.

`python -m workers.NAME` starts an entry; no package imports one.
"""
