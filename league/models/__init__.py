"""The model pool in Redis, its folder on disk, and snapshots of a whole league.

Others take `pool.Pool`, `keeper.Keeper` and `snapshots.Snapshots`; `python -m league.models` is in cli/.
"""
