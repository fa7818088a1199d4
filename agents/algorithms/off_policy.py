"""Base of algorithms that learn from stored transitions, with critics and targets that the learner alone has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from agents.algorithms.base import ConfiguredAlgorithm
from agents.algorithms.contract import PRIORITIZED, UNIFORM, Needs
from agents.algorithms.descent import Descent
from agents.algorithms.late_checks import Checked
from agents.algorithms.optimizers import OptimizerConfig
from agents.algorithms.peers import Peers
from agents.algorithms.settings import Allowed
from agents.algorithms.transition_steps import Learned, Told, TransitionSteps
from agents.algorithms.transitions import Transitions
from agents.policies import Policy
from agents.trajectories import CUT_OBSERVATION, Trajectory
from warren.errors import ConfigurationError, NotFinite
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


# Settings of the optimizers' rates, which a step reads anew each time.
RATES = ("learning_rate", "anneal_steps", "anneal_to", "critic_rate", "temperature_rate")
D = TypeVar("D", bound=OffPolicyConfig)


class OffPolicyAlgorithm(ConfiguredAlgorithm[D]):
    """Keeps `modules` that are not published: critics, and targets, which follow other modules. The descent of its name
    steps each part that learns. All of these are in the state."""

    fixed: ClassVar[tuple[str, ...]] = ("optimizer", "n_steps", "prioritized")

    def __init__(self, policy: Policy, config: D, seed: int) -> None:
        """Raise ConfigurationError for a network that changes the units of its value."""
        super().__init__(policy, config, seed)
        if policy.value_scale is not None:
            raise ConfigurationError(
                f"network.normalize_values: {config.name!r} learns values of actions, whose units it cannot change; "
                "leave it out"
            )
        self.needs = Needs(
            fields=(CUT_OBSERVATION,),
            source=PRIORITIZED if config.prioritized else UNIFORM,
            length=self.length,
        )
        self.updates = 0
        self._checks: list[Checked] | None = None  # of a step under way, to be looked at when it has ended
        self._steps: tuple[D, TransitionSteps] | None = None  # with the settings that they are made for
        self.modules: dict[str, nn.Module] = {}
        self.descents: dict[str, Descent] = {}

    @property
    def length(self) -> int:
        """Steps of each drawn sequence."""
        return self.config.n_steps

    def learns(self, name: str, module: nn.Module, others: Iterable[nn.Module] = ()) -> None:
        """Let `descend(name, ...)` step the parameters of `module` from now on.

        `others`: other parts that learn, whose parameters `learning_rates` may name too.
        """
        self.descents[name] = Descent(module, self.config, others)

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
        self._steps = None  # moments are replaced
        for name, module in self.modules.items():
            for key, tensor in module.state_dict().items():
                tensor.copy_(tensors[f"{name}.{key}"])
        for name, descent in self.descents.items():
            own = {key.removeprefix(f"{name}."): part for key, part in tensors.items() if key.startswith(f"{name}.")}
            descent.load_state(own)

    def take_peers(self, peers: Peers) -> None:
        """Train together with `peers` from now on: the same weights, each learner on its share of every update."""
        super().take_peers(peers)
        self._steps = None

    # Parts of `update`.

    def step(self, drawn: Transitions, noise: Mapping[str, Tensor], moves: bool) -> Learned:
        """Make one step on transitions, where the policy is; see TransitionStep. Override it to use `learn`."""
        raise NotImplementedError

    def learn(self, drawn: Transitions, noise: Mapping[str, Tensor] | None = None, moves: bool = True) -> Told:
        """Make `step`, with transitions and `noise` on the processor; return its outcome there. Raises NotFinite."""
        if self._steps is None or not _equal_but_for_rates(self._steps[0], self.config):
            plain = self.policy.computes_plainly and self.peers.size == 1
            modules = [self.policy, *self.modules.values()]
            self._steps = self.config, TransitionSteps(self._checked_step, self.descents, modules, plain)
        return self._steps[1](drawn, noise or {}, moves)

    def _checked_step(
        self, drawn: Transitions, noise: Mapping[str, Tensor], moves: bool
    ) -> tuple[Learned, Sequence[Checked]]:
        self._checks = []
        try:
            return self.step(drawn, noise, moves), self._checks
        finally:
            self._checks = None

    @property
    def _failed(self) -> Tensor | None:
        """Return float32 []: 1 where a part's step has failed in this `step`; None where none is looked at later."""
        flags = [flag for check in self._checks or () for flag in check.flags]
        return flags[-1] if flags else None

    def follow(self, target: nn.Module, module: nn.Module, rate: float) -> None:
        """Do as the function `follow`, unless a part's step has failed."""
        failed = self._failed
        follow(target, module, rate if failed is None else rate * (1 - failed))

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
        descent, late = self.descents[name], self.descents[name].late

        def error(loss: Tensor, terms: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> NotFinite:
            model = self.modules.get(name, self.policy.network)
            return self.not_finite(f"the step of the {name}", loss, terms, inputs, model)

        if late is not None:
            late.begin(self._failed)
        descent.differentiate(loss)
        norm = descent.step(loss.detach(), steps, self.peers, self.config.max_grad_norm, terms, inputs, error)
        if late is not None and self._checks is None:
            late.look()
        elif late is not None and self._checks is not None:
            self._checks.append(late.checked())
        return norm


def _equal_but_for_rates(one: OffPolicyConfig, other: OffPolicyConfig) -> bool:
    if one is other:
        return True
    first, second = asdict(one), asdict(other)
    return all(first[name] == second[name] for name in first if name not in RATES)


def target_of(module: nn.Module) -> nn.Module:
    """Return a copy of `module` that learns only by `follow`."""
    return deepcopy(module).requires_grad_(False)


@torch.no_grad()
def follow(target: nn.Module, module: nn.Module, rate: float | Tensor = 1.0) -> None:
    """Move the weights of `target` by the fraction `rate` of the way to those of `module`; copy the buffers."""
    parameters: list[Tensor] = list(module.parameters())
    if isinstance(rate, Tensor):
        for parameter, now in zip(target.parameters(), parameters, strict=True):
            parameter.lerp_(now, rate)
    elif parameters:
        torch._foreach_lerp_(list(target.parameters()), parameters, rate)
    for buffer, now in zip(target.buffers(), module.buffers(), strict=True):
        buffer.copy_(now)
