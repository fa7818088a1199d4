"""Playing: samplers of one policy or two, trajectories, matches; the actor of a plain run.

Others take the samplers and `match_scheduler.Matches`; leagues/ builds its own actor of them.
"""
