"""A stand-in for each part, so that teams can work apart; each is one command, and needs no other part of a run.

python -m workers.gateway.fakes.actor                     # for a game: answers the same to every request
python -m workers.gateway.fakes.model FILE.py:CLASS       # for an Actor: a policy with random weights
python -m workers.gateway.fakes.gamecore --url URL        # for an Actor: games that ask, in bursts, late, or leave
python -m workers.gateway.fakes.buffer run=NAME ...       # for a learner: random trajectories
"""
