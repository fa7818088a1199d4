"""Q-learning from a replay: DQN, double, dueling, n-step, prioritized, of quantiles (QR-DQN)."""

from agents.algorithms.dqn.algorithm import DQN
from agents.algorithms.dqn.config import DQNConfig

__all__ = ["DQN", "DQNConfig"]
