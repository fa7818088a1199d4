"""`python -m workers.evaluator`: plays frozen players against each other until each pair is known well enough.

Cells of the payoff are played in batches, first those on which the league's Nash mixture depends most. Each is played
until its mean return is known to within a standard error (a sequential test, with a bound on games). Any number of
evaluators share the work. The one with `evaluator_id=0` also draws the league's pictures and scores the league: in any
game by returns against fixed references, and in games that are small enough by the exploitability of the main agent and
of the mixture.
"""

from __future__ import annotations

from workers.config.command_line import role

if __name__ == "__main__":
    role("evaluator")()
