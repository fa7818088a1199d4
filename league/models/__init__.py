"""The model pool in Redis, its folder on disk, and snapshots of a whole league.

Other packages use `pool.Pool`, `keeper.Keeper` and `snapshots.Snapshots`; `python -m league.models` is in cli/.
"""
