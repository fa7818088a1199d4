"""The processes: thin entries, one a role, over rooms that put tasks, league, agents and envs together.

`python -m workers.NAME` starts an entry; nothing imports one.
"""
