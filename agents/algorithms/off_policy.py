"""Base of algorithms that learn from stored transitions, with critics and targets that the learner alone has."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from agents.algorithms.base import ConfiguredAlgorithm
from agents.algorithms.contract import PRIORITIZED, UNIFORM, Needs
from agents.algorithms.descent import Descent
from agents.algorithms.optimizers import OptimizerConfig
from agents.algorithms.settings import Allowed
from agents.policies import Policy
from agents.trajectories import CUT_OBSERVATION, Trajectory
from warren.errors import NotFinite
from warren.trees import map_tree


@dataclass(frozen=True)
class OffPolicyConfig(OptimizerConfig):
    """Settings that all of these algorithms have."""

    adam_epsilon: float = 1e-8  # added to the root of adam's mean of squares
    max_grad_norm: float | None = None  # longer gradients are scaled down to this norm; null: none are
    gamma: float = 0.99  # the discount of a step
    n_steps: int = 1  # steps whose rewards a target has before its bootstrap
    prioritized: bool = False  # draw transitions by their last errors, and correct for that by weights

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "max_grad_norm": ("above 0 or null", self.max_grad_norm is None or self.max_grad_norm > 0),
            "gamma": ("within 0 and 1", 0 <= self.gamma <= 1),
            "n_steps": ("at least 1", self.n_steps >= 1),
        }


D = TypeVar("D", bound=OffPolicyConfig)


class OffPolicyAlgorithm(ConfiguredAlgorithm[D]):
    """Keeps `modules` that are not published: critics, and targets, which follow other modules. The descent of its name
    steps each part that learns. All of these are in the state."""

    fixed: ClassVar[tuple[str, ...]] = ("optimizer", "n_steps", "prioritized")

    def __init__(self, policy: Policy, config: D, seed: int) -> None:
        super().__init__(policy, config, seed)
        self.needs = Needs(
            fields=(CUT_OBSERVATION,),
            source=PRIORITIZED if config.prioritized else UNIFORM,
            length=self.length,
        )
        self.updates = 0
        self.modules: dict[str, nn.Module] = {}
        self.descents: dict[str, Descent] = {}

    @property
    def length(self) -> int:
        """Steps of each drawn sequence."""
        return self.config.n_steps

    def learns(self, name: str, module: nn.Module) -> None:
        """Let `descend(name, ...)` step the parameters of `module` from now on."""
        self.descents[name] = Descent(module, self.config)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return (tensors, scalars) to resume from: critics, targets, moments of the optimizers, the generator."""
        tensors = {"generator": self.generator.get_state()}
        for name, module in self.modules.items():
            tensors |= {f"{name}.{key}": tensor for key, tensor in module.state_dict().items()}
        for name, descent in self.descents.items():
            tensors |= {f"{name}.{key}": tensor for key, tensor in descent.state().items()}
        return tensors, {"steps": self.steps, "updates": self.updates}

    def load_state(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        """Continue from what `state` returned; the policy's weights are loaded apart from it."""
        self.steps, self.updates = int(scalars["steps"]), int(scalars["updates"])
        self.generator.set_state(tensors["generator"])
        for name, module in self.modules.items():
            for key, tensor in module.state_dict().items():
                tensor.copy_(tensors[f"{name}.{key}"])
        for name, descent in self.descents.items():
            own = {key.removeprefix(f"{name}."): part for key, part in tensors.items() if key.startswith(f"{name}.")}
            descent.load_state(own)

    # Parts of `update`.

    def set_learning_rates(self) -> float:
        """Give all optimizers their present settings; return the learning rate."""
        rate = self.config.learning_rate_at(self.steps, self.progress)
        for name, descent in self.descents.items():
            descent.configure(self.config, rate * self.rate_of(name))
        return rate

    def rate_of(self, name: str) -> float:
        """Return the factor of the learning rate of a part."""
        return 1.0

    def take_in(self, drawn: Trajectory) -> None:
        """Add the observations of all steps where an agent decided to the moments of normalisation."""
        valid = drawn.valid
        seen = drawn.observation if valid is None else map_tree(lambda leaf: leaf[valid], drawn.observation)
        self.policy.take_in(self.policy.leaves(seen))

    def descend(
        self, name: str, loss: Tensor, terms: Mapping[str, Tensor], inputs: Mapping[str, Tensor], steps: int
    ) -> Tensor:
        """Make one optimizer step of the part `name`; return the gradient's norm before it was clipped.

        Raises NotFinite, having changed nothing of that part, where the loss or the norm is NaN or infinite; its
        message describes the loss's `terms` and `inputs`. `loss` is a mean over `steps` steps.
        """
        descent = self.descents[name]

        def error(loss: Tensor, terms: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> NotFinite:
            model = self.modules.get(name, self.policy.network)
            return self.not_finite(f"the step of the {name}", loss, terms, inputs, model)

        norm = descent.step(loss, steps, self.peers, self.config.max_grad_norm, terms, inputs, error)
        if descent.late is not None:
            descent.late.look()
        return norm


def target_of(module: nn.Module) -> nn.Module:
    """Return a copy of `module` that learns only by `follow`."""
    return deepcopy(module).requires_grad_(False)


@torch.no_grad()
def follow(target: nn.Module, module: nn.Module, rate: float = 1.0) -> None:
    """Move the weights of `target` by the fraction `rate` of the way to those of `module`; copy the buffers."""
    parameters: list[Tensor] = list(module.parameters())
    if parameters:
        torch._foreach_lerp_(list(target.parameters()), parameters, rate)
    for buffer, now in zip(target.buffers(), module.buffers(), strict=True):
        buffer.copy_(now)
