"""Settings of QMIX."""

from __future__ import annotations

from dataclasses import dataclass

from agents.algorithms.dqn.config import DQNConfig
from agents.algorithms.settings import Allowed, Scheduled

SUM = "sum"


@dataclass(frozen=True)
class QMIXConfig(DQNConfig):
    """Settings of `qmix`: those of DQN, of sequences, and of the mixing network."""

    learning_rate: Scheduled = 5e-4
    huber: float = 10.0  # the loss is linear in errors beyond this
    target_every: int = 200  # updates after which the target becomes a copy, where target_rate is 1
    burn_in: int = 0  # steps of a sequence that only bring its memory up to date
    learned: int = 1  # steps of a sequence after them that are learned from
    mixing: str = "monotonic"  # by a network whose weights the state gives (QMIX), or sum, without the state (VDN)
    mixing_size: int = 32  # units of the mixing network's hidden layer
    return_coefficient: Scheduled = 0.0  # weight of (value - return)^2, where a sequence reaches its game's end
    reward_offset: float = 0.0  # added to the reward of each step: the mixer's ELUs are flat where values are below 0

    name = "qmix"

    def scheduled(self) -> tuple[str, ...]:
        return (*super().scheduled(), "return_coefficient")

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "n_steps": ("1, since agents come and go", self.n_steps == 1),
            "quantiles": ("1: means are mixed", self.quantiles == 1),
            "burn_in": ("at least 0", self.burn_in >= 0),
            "learned": ("at least 1", self.learned >= 1),
            "mixing": ("monotonic or sum", self.mixing in ("monotonic", SUM)),
            "mixing_size": ("at least 1", self.mixing_size >= 1),
            "return_coefficient": (
                "at least 0, and 0 with learned=1, since a return takes several steps",
                self.all_of("return_coefficient", lambda x: x >= 0 and (x == 0 or self.learned > 1)),
            ),
        }
