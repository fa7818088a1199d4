"""The base of all algorithms' settings, and settings that several algorithms share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from warren.errors import ConfigurationError

Allowed = dict[str, tuple[str, bool]]  # setting -> (what it must be, whether it is)


@dataclass(frozen=True)
class AlgorithmConfig:
    """Base of all settings. Raises ConfigurationError with all that is wrong."""

    name: ClassVar[str] = ""  # of the algorithm, in errors

    def allowed(self) -> Allowed:
        """Return the bounds of all settings: a subclass adds its own to those of super()."""
        return {}

    def __post_init__(self) -> None:
        problems = [
            f"{setting}={getattr(self, setting)} of {self.name} must be {text}"
            for setting, (text, holds) in self.allowed().items()
            if not holds
        ]
        if problems:
            raise ConfigurationError(problems)


@dataclass(frozen=True)
class EpochsConfig(AlgorithmConfig):
    """Settings of algorithms that go over a batch several times in minibatches, with PPO's clipped loss."""

    epochs: int = 10  # passes over each batch
    minibatch_size: int = 256  # steps at most; a batch is cut into equal parts
    clip_range: float = 0.2  # by which the ratio of probabilities may leave 1
    normalize_advantage: bool = True  # to mean 0 and deviation 1 in each minibatch

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "epochs": ("at least 1", self.epochs >= 1),
            "minibatch_size": ("at least 2, or advantages have no spread", self.minibatch_size >= 2),
            "clip_range": ("above 0", self.clip_range > 0),
        }


@dataclass(frozen=True)
class VTraceConfig(AlgorithmConfig):
    """Settings of algorithms that correct by V-trace for weights that acted and are older."""

    rho_bar: float = 1.0  # importance weights are cut to it: which policy's value is found
    c_bar: float = 1.0  # the same of the traces: how fast it is found
    lambda_: float = 1.0  # V-trace's traces are multiplied by it

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "rho_bar": ("above 0, and at least c_bar", self.rho_bar > 0 and self.rho_bar >= self.c_bar),
            "c_bar": ("above 0", self.c_bar > 0),
            "lambda_": ("within 0 and 1", 0 <= self.lambda_ <= 1),
        }
