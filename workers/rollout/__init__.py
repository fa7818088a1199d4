"""Playing: samplers of one policy or two, trajectories, matches; the actor of a plain run.

Other packages use the samplers and `match_scheduler.Matches`; leagues/ builds its own actor from them.
"""
