"""Trained policies in service: the gateway that games ask, by one process or several, and a service for callers.

`python -m workers.deploy` starts it; what computes a policy is in workers/models.
"""
