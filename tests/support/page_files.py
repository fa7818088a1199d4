"""Files of a reader's own, as the pages name them."""

OWN_FILES = {
    "path/to/file.py": """
import gymnasium, numpy as np
from gymnasium.spaces import Box, Dict, Discrete

class Game(gymnasium.Env):
    observation_space = Dict({"seen": Box(-1, 1, (3,)), "state": Box(-1, 1, (5,))})
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return {"seen": np.zeros(3, np.float32), "state": np.zeros(5, np.float32)}, {}

    def step(self, action):
        self.steps += 1
        return {"seen": np.zeros(3, np.float32), "state": np.zeros(5, np.float32)}, 1.0, self.steps == 9, False, {}

class Pictures(Game):
    observation_space = Box(0, 255, (84, 84, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        return np.zeros((84, 84, 3), np.uint8), super().reset(seed=seed)[1]

    def step(self, action):
        return np.zeros((84, 84, 3), np.uint8), *super().step(action)[1:]

def make():
    return Pictures()
""",
    "path/to/game.py": "import gymnasium\n\n\ndef Game():\n    return gymnasium.make('CartPole-v1')\n",
    "my_script.py": "from tasks import context\n\nprint('of the run', context.current()[1].run)\n",
}
