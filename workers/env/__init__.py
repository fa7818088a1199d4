"""Env runners: processes that step environments for which a served run's actors decide.

No other package imports this one. Env runners know actors only by the calls that `rollout/served/sampler.py` describes.
"""
