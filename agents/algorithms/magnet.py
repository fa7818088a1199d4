"""A magnet: the policy's own past weights, to which its loss draws it by KL(policy || magnet).

In two-player zero-sum games a magnet makes the last policy of self-play approach an equilibrium; without a magnet the
policy would cycle around it. If the magnet stands still, the policy approaches the equilibrium of the game with the KL
as a cost (magnetic mirror descent, Sokota et al. 2023; its uniform magnet is the entropy bonus). If the magnet is
renewed, the policy approaches the equilibrium of the game itself. A magnet is renewed in one of two ways: it becomes a
copy of the policy every N updates (NashPG, arXiv 2510.18183; R-NaD, Perolat et al. 2022), or it moves a little after
each update, which for logits is Sokota's magnet^(1 - rate) policy^rate. A magnet
that is never renewed and whose coefficient falls to 0 only ties a player to the weights that it began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from agents.algorithms.flat_parameters import FlatParameters
from agents.algorithms.settings import AlgorithmConfig, Allowed, Scheduled
from agents.policies import Policy

KEY = "magnet."  # before the names of its tensors in an algorithm's state


@dataclass(frozen=True)
class MagnetConfig(AlgorithmConfig):
    """Settings of the magnet; with a coefficient of 0 there is no magnet."""

    magnet_coefficient: Scheduled = 0.0  # weight of KL(policy || magnet) in the loss; the magnet is an older policy
    magnet_every: int | None = None  # updates after which the magnet becomes a copy of the policy; null: it does not
    magnet_rate: float = 0.0  # fraction of the way to the policy that the magnet moves after each update

    def scheduled(self) -> tuple[str, ...]:
        return (*super().scheduled(), "magnet_coefficient")

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "magnet_coefficient": ("at least 0", self.all_of("magnet_coefficient", lambda x: x >= 0)),
            "magnet_every": ("at least 1 or null", self.magnet_every is None or self.magnet_every >= 1),
            "magnet_rate": (
                "within 0 and 1, and 0 with magnet_every",
                0 <= self.magnet_rate <= (1 if self.magnet_every is None else 0),
            ),
        }


class Magnet:
    """A copy of `policy` that follows it as the settings say."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy.frozen_copy()
        self.parameters = FlatParameters(self.policy)  # laid out as the policy's own
        self.has_buffers = any(True for _ in self.policy.buffers())
        self.age = 0  # updates since it was made or copied

    def due(self, config: MagnetConfig) -> float:
        """Count an update; return the fraction of the way to the policy that the magnet is to move now."""
        self.age += 1
        if config.magnet_every is None or self.age < config.magnet_every:
            return config.magnet_rate
        self.age = 0
        return 1.0

    def state(self) -> dict[str, Tensor]:
        """Return the magnet's weights by KEY and name."""
        return {KEY + name: tensor for name, tensor in self.policy.state_dict().items()}

    @classmethod
    def from_state(cls, policy: Policy, tensors: Mapping[str, Tensor], age: int) -> Magnet | None:
        """Return the magnet of `policy` whose `state` is among `tensors`; None where there is none."""
        weights = {name.removeprefix(KEY): tensor for name, tensor in tensors.items() if name.startswith(KEY)}
        if not weights:
            return None
        magnet = cls(policy)
        magnet.policy.load_state_dict(weights)
        magnet.age = age
        return magnet


class Followed(NamedTuple):
    """A magnet, and the policy that it follows."""

    magnet: Magnet
    policy: Policy
    values: Tensor  # float [P], all parameters of `policy`
    config: MagnetConfig


@torch.no_grad()
def follow(every: Iterable[Followed]) -> None:
    """Count an update of each policy, and move its magnet towards it as the settings say."""
    by_rate: dict[float, list[Followed]] = {}
    for one in every:
        if rate := one.magnet.due(one.config):
            by_rate.setdefault(rate, []).append(one)
    for rate, moving in by_rate.items():
        magnets = [one.magnet.parameters.values.detach() for one in moving]
        torch._foreach_lerp_(magnets, [one.values.detach() for one in moving], rate)
        for one in moving:
            if one.magnet.has_buffers:  # moments of normalisation, which cannot be interpolated
                for buffer, now in zip(one.magnet.policy.buffers(), one.policy.buffers(), strict=True):
                    buffer.copy_(now)
