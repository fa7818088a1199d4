"""Env runners: processes that step environments for which a served run's actors decide.

Nobody imports them; they know of actors only what `rollout/served/sampler.py` says of a call.
"""
