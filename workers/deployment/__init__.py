"""Trained policies in service: a gateway for games, in one process or several, and a service for other callers.

`python -m workers.deploy` starts the gateway. The backends that compute a policy are in workers/models.
"""
