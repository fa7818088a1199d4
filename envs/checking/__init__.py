"""Checks of an environment for everything that would break a run.

A few random steps at every start (first_steps), a few thousand by `python -m envs.check` (one_agent, two_player), whose
findings go into a report. What is wrong with a single observation, reward or turn is said in faults.
"""
