"""Checks of an environment for everything that would break a run.

A few random steps run at every start (first_steps), and a few thousand with `python -m envs.check` (one_agent,
two_player), whose findings go into a report. faults describes what is wrong with a single observation, reward or turn.
"""
