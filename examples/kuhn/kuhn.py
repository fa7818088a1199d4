"""Kuhn poker by its rules: three cards, one for each player; each puts a chip into the pot; one bet of a chip.

python -m workers.train league=mine league.env=examples/kuhn/kuhn.py:Kuhn seconds=120
"""

import numpy as np

from envs.rules import CHANCE, TERMINAL, Rules


class Kuhn(Rules):
    num_actions = 2  # 0 passes (checks or folds), 1 bets or calls

    def initial(self):
        return (), ()  # the two cards, what was done

    def to_move(self, state):
        cards, done = state
        if len(cards) < 2:
            return CHANCE
        return TERMINAL if done in ((0, 0), (1, 0), (1, 1), (0, 1, 0), (0, 1, 1)) else len(done) % 2

    def chance(self, state):
        left = [card for card in range(3) if card not in state[0]]
        return [(card, 1 / len(left)) for card in left]

    def legal(self, state):
        return [0, 1]

    def step(self, state, action):
        cards, done = state
        return ((*cards, action), done) if len(cards) < 2 else (cards, (*done, action))

    def returns(self, state):  # to player 0
        (mine, other), done = state
        if done[-1] == 0 and 1 in done:  # the last one folded
            return 1 if len(done) == 2 else -1
        return (2 if 1 in done else 1) * (1 if mine > other else -1)

    def observation(self, state):  # the own card, then the moves
        cards, done = state
        return np.concatenate([np.eye(3)[cards[len(done) % 2]], np.array([*done, -1, -1][:2])])
