"""A league's roles: its service, an actor and a learner that ask it, and the whole league in one process.

Others take `local.LocalLeague`; the entries start the roles.
"""
