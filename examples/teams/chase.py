"""A catcher and a runner on a board: two roles, each learned by players of its own.

python -m workers.train league=roles
"""

import numpy as np

import envs

SIZE, MOST_MOVES = 5, 24
STEPS = np.array([[0, 1], [1, 0], [0, -1], [-1, 0], [0, 0]])  # the catcher has only the first four


class Chase(envs.TurnVectorEnv):
    """N games at once. Side 0 wins if it reaches the cell of side 1; side 1 wins if it is still free after 24 moves."""

    max_return = 1.0

    def __init__(self, num_envs, seed):
        super().__init__("chase", num_envs, (2 * SIZE * SIZE + 2,), len(STEPS))
        self.chance = envs.Chance(num_envs, seed)
        self.place, self.moves = np.zeros((num_envs, 2, 2), np.int64), np.zeros(num_envs, np.int64)

    def _reset(self):
        self._begin(self._rows)
        return self._turn(*self._no_outcome())

    def _step(self, action):
        reward, done, truncated = self._no_outcome()
        rows, mover = self._rows, self.moves % 2
        self.place[rows, mover] = np.clip(self.place[rows, mover] + STEPS[action], 0, SIZE - 1)
        self.moves += 1
        caught = (self.place[:, 0] == self.place[:, 1]).all(axis=1)
        done[:] = caught | (self.moves == MOST_MOVES)
        reward[done] = np.where(caught[done, None], [1.0, -1.0], [-1.0, 1.0])
        if done.any():
            self._begin(rows[done])
        return self._turn(reward, done, truncated)

    def _begin(self, rows):
        self.chance.begin(rows)
        self.moves[rows] = 0
        self.place[rows, 0] = 0
        drawn = 1 + (SIZE * SIZE - 1) * self.chance.uniform(rows)
        self.place[rows, 1] = np.stack(np.divmod(drawn.astype(np.int64), SIZE), axis=1)

    def _turn(self, reward, done, truncated):
        mover = self.moves % 2
        mask = np.ones((self.num_envs, len(STEPS)), np.bool_)
        mask[mover == 0, 4] = False  # the catcher may not wait
        board = np.zeros((self.num_envs, 2, SIZE * SIZE), np.float32)
        cells = self.place @ [SIZE, 1]
        board[self._rows[:, None], [0, 1], cells] = 1.0
        extra = np.column_stack([mover, self.moves / MOST_MOVES]).astype(np.float32)
        seen = np.concatenate([board.reshape(self.num_envs, -1), extra], axis=1)
        return envs.Turn(mover.astype(np.int8), seen, mask, reward, done, truncated)
