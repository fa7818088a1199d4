"""The services that all peers of `benchmarks.calls` offer, and their arguments."""

from __future__ import annotations

import numpy as np

from tasks.service import Worker, service

WEIGHTS = np.random.default_rng(1).standard_normal((4, 64)).astype("f4")
OBSERVATION = np.random.default_rng(2).standard_normal((32, 4)).astype("f4")
SUB_ACTIONS, CHOICES, HIDDEN = 16, 8, 32


class Actor(Worker):
    """A linear policy, and a policy whose forward pass is worth batching; all peers offer both."""

    def __init__(self) -> None:
        super().__init__()
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.torso = torch.nn.Linear(OBSERVATION.size, HIDDEN)
        self.cell = torch.nn.GRUCell(CHOICES, HIDDEN)
        self.head = torch.nn.Linear(HIDDEN, CHOICES)
        self.one_hot = torch.eye(CHOICES)

    @service
    def infer(self, observation: np.ndarray) -> np.ndarray:
        return (observation @ WEIGHTS).argmax(-1)

    @service
    def push(self, observation: np.ndarray) -> None:
        return None

    @service
    def decide(self, observation: np.ndarray) -> np.ndarray:
        """Return an action, int64 [16], for one state, float32 [32, 4] (32 units, 4 features each)."""
        return self._decide(np.stack([observation]))[0]  # a copy: arrays off the wire are read-only

    @service(batch=64)
    def decide_batched(self, observations: list[np.ndarray]) -> list[np.ndarray]:
        """Decide for many callers in one forward pass."""
        return list(self._decide(np.stack(observations)))

    def _decide(self, states: np.ndarray) -> np.ndarray:
        """Return actions [N, 16] for states [N, 32, 4]: each part of an action is chosen given those before it."""
        import torch

        with torch.inference_mode():
            hidden = torch.tanh(self.torso(torch.from_numpy(states).flatten(1)))
            chosen, parts = torch.zeros(len(hidden), CHOICES), []
            for _ in range(SUB_ACTIONS):
                hidden = self.cell(chosen, hidden)
                parts.append(self.head(hidden).argmax(1))
                chosen = self.one_hot[parts[-1]]
            return torch.stack(parts, 1).numpy()
