"""Two against two on a ring: the team of the player that reaches the token first gets it; three tokens win.

python -m workers.train league=teams
"""

import numpy as np

import envs

CELLS, TO_WIN, MOST_MOVES = 12, 3, 80


class Tokens(envs.TurnVectorEnv):
    """N games at once. Players 0 and 2 are a team, 1 and 3 the other; in turn they step back, stay or step forward."""

    max_return = TO_WIN

    def __init__(self, num_envs, seed):
        super().__init__("tokens", num_envs, (4 * CELLS,), 3, players=4, teams=[(0, 2), (1, 3)])
        self.chance = envs.Chance(num_envs, seed)
        self.place, self.points = np.zeros((num_envs, 4), np.int64), np.zeros((num_envs, 2), np.int64)
        self.token, self.mover, self.moves = np.zeros((3, num_envs), np.int64)

    def _reset(self):
        self._begin(self._rows)
        return self._turn(*self._no_outcome())

    def _step(self, action):
        reward, done, truncated = self._no_outcome()
        rows, mover = self._rows, self.mover
        self.place[rows, mover] = place = (self.place[rows, mover] + action - 1) % CELLS
        taken, team = place == self.token, mover % 2
        reward[taken] = np.where(np.arange(4) % 2 == team[taken, None], 1.0, -1.0)
        self.points[rows[taken], team[taken]] += 1
        self.mover, self.moves = (mover + 1) % 4, self.moves + 1
        over = self.points.max(axis=1) == TO_WIN
        truncated[:] = ~over & (self.moves == MOST_MOVES)
        done[:] = over | truncated
        self.token[taken] = self._cells(rows[taken])
        if done.any():
            self._begin(rows[done])
        return self._turn(reward, done, truncated)

    def _begin(self, rows):
        self.chance.begin(rows)
        self.points[rows] = self.moves[rows] = 0
        self.mover[rows] = 4 * self.chance.uniform(rows)
        for player in range(4):
            self.place[rows, player] = self._cells(rows)
        self.token[rows] = self._cells(rows)

    def _cells(self, rows):
        return (CELLS * self.chance.uniform(rows)).astype(np.int64)

    def _turn(self, reward, done, truncated):
        """Show the player to move how far ahead the token, its mate and both opponents are, each one-hot over CELLS."""
        rows, mover = self._rows, self.mover
        others = self.place[rows[:, None], (mover[:, None] + [2, 1, 3]) % 4]
        ahead = (np.column_stack([self.token, others]) - self.place[rows, mover, None]) % CELLS
        seen = np.eye(CELLS, dtype=np.float32)[ahead].reshape(self.num_envs, -1)
        any_move = np.ones((self.num_envs, 3), np.bool_)
        return envs.Turn(mover.astype(np.int8), seen, any_move, reward, done, truncated)
