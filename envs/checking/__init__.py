"""Checks of an environment for everything that would break a run.

Every start makes a few random steps (first_steps). `python -m envs.check` makes a few thousand (one_agent, two_player),
and puts its findings into a report. The module faults describes what is wrong with a single observation, reward or
turn.
"""
