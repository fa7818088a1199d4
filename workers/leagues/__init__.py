"""A league's roles: its service, an actor and a learner that ask it, and the whole league in one process.

Other packages use `local.LocalLeague`; the entries in workers/ start the roles.
"""
