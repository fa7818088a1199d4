"""What algorithms that follow a gradient share: the optimizer, its schedules, and a state to go on from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import isfinite
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from agents.algorithms.adam import MOMENTS, Adam
from agents.algorithms.batches import Batch
from agents.algorithms.burn_in import BurnInConfig
from agents.algorithms.contract import Needs
from agents.algorithms.flat_parameters import FlatParameters
from agents.algorithms.late_checks import LateChecks
from agents.algorithms.numbers import not_finite
from agents.algorithms.peers import ALONE, Peers, cuts, standardized
from agents.algorithms.settings import Allowed
from agents.algorithms.teacher import TeacherConfig, check_heads, check_teacher, imitation, lessons
from agents.configuration import parse
from agents.operators.normalization import RunningMoments, discounted_sums
from agents.operators.schedules import InverseSquareRoot, Linear
from agents.operators.unrolls import weighted_channels
from agents.policies import Policy
from agents.trajectories import Trajectory
from warren.errors import ConfigurationError, NotFinite

REWARD_CLIP = 10.0  # deviations that a scaled reward is cut to, as ppo2's VecNormalize has it


@dataclass(frozen=True)
class GradientConfig(TeacherConfig):
    """Settings of the optimizer, of the loss and of a teacher that all of these algorithms have."""

    learning_rate: float = 1.5e-3  # of Adam
    anneal_steps: int | None = None  # environment steps over which the rate falls linearly; null keeps it constant
    anneal_to: float = 0.0  # the fraction of learning_rate that it falls to
    adam_beta1: float = 0.9  # decay of its mean of gradients
    adam_beta2: float = 0.999  # decay of its mean of their squares
    adam_epsilon: float = 1e-5  # that of the reference implementations of PPO, not torch's
    max_grad_norm: float = 0.5  # longer gradients are cut to it
    gamma: float = 0.99  # the discount of a step
    entropy_coefficient: float = 0.0  # of the entropy bonus in the loss
    entropy_decay_steps: int | None = None  # the coefficient falls by 1/sqrt(1 + steps/this); null keeps it constant
    value_coefficient: float = 0.5  # of the value loss
    scale_rewards: bool = False  # by the deviation of their discounted sums, and cut to REWARD_CLIP of it

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "learning_rate": ("above 0 and at most 1", 0 < self.learning_rate <= 1),
            "anneal_steps": ("at least 1 or null", self.anneal_steps is None or self.anneal_steps >= 1),
            "anneal_to": ("within 0 and 1", 0 <= self.anneal_to <= 1),
            "adam_beta1": ("at least 0 and below 1", 0 <= self.adam_beta1 < 1),
            "adam_beta2": ("at least 0 and below 1", 0 <= self.adam_beta2 < 1),
            "adam_epsilon": ("above 0", self.adam_epsilon > 0),
            "max_grad_norm": ("above 0", self.max_grad_norm > 0),
            "gamma": ("within 0 and 1", 0 <= self.gamma <= 1),
            "entropy_coefficient": ("at least 0", self.entropy_coefficient >= 0),
            "entropy_decay_steps": (
                "at least 1 or null",
                self.entropy_decay_steps is None or self.entropy_decay_steps >= 1,
            ),
            "value_coefficient": ("at least 0", self.value_coefficient >= 0),
        }


C = TypeVar("C", bound=GradientConfig)


class GradientAlgorithm(Generic[C]):
    """Trains `policy` in place; `seed` decides the order of minibatches."""

    needs = Needs()

    def __init__(self, policy: Policy, config: C, seed: int) -> None:
        self.policy = policy
        self.config = config
        self.steps = 0  # environment steps that all learners have trained on; schedules follow it
        if isinstance(config, BurnInConfig):
            self.needs = replace(self.needs, burn_in=config.burn_in)
        self.teacher: Policy | None = None
        self.peers: Peers = ALONE
        check_heads(config.name, config, policy)
        self.generator = torch.Generator().manual_seed(seed)
        self.parameters = FlatParameters(policy)
        self.optimizer = Adam(self.parameters.values, config.learning_rate)
        self.late = LateChecks(self.parameters.gradient) if policy.device.type == "cuda" else None
        self.discounted = RunningMoments()  # sums of rewards, where those are scaled

    @property
    def entropy_coefficient(self) -> float:
        """As it is by now."""
        config = self.config
        if config.entropy_decay_steps is None:
            return config.entropy_coefficient
        return InverseSquareRoot(config.entropy_coefficient, config.entropy_decay_steps)(self.steps)

    @property
    def pays_entropy(self) -> bool:
        """Return True where the loss has an entropy term; elsewhere entropy is only reported."""
        return self.config.entropy_coefficient > 0

    def behaviour(self) -> dict[str, float]:
        """Nothing: actors sample from the policy as it is."""
        return {}

    def adjust(self, changes: Mapping[str, Any]) -> None:
        """Settings from now on, the others staying: a population's hyperparameters. Raises ConfigurationError."""
        if self.needs.burn_in != changes.get("burn_in", self.needs.burn_in):
            raise ConfigurationError(f"burn_in={changes['burn_in']} of {self.config.name}: is the same for a whole run")
        if changes:
            self.config = parse(type(self.config), self.config.name, {**asdict(self.config), **changes})

    def begin_at(self, steps: int) -> None:
        """Set the schedules to where they stand after `steps` environment steps of all learners."""
        self.steps = steps

    def take_peers(self, peers: Peers) -> None:
        """From now on train together with `peers`: the same weights, each learner on its share of every update."""
        self.peers = peers
        total = None if peers.size == 1 and peers is ALONE else peers.total
        for part in (*self.policy.modules(), self.discounted):
            if isinstance(part, RunningMoments):
                part.total = total

    def standardize(self, x: Tensor) -> Tensor:
        """`x` with mean 0 and deviation 1 over all learners' of this minibatch."""
        return standardized(x, self.peers)

    def mean(self, x: Tensor, steps: int) -> Tensor:
        """The scalar `x`, a mean over `steps`, over all learners' of this minibatch."""
        if self.peers.size == 1:
            return x
        total, count = self.peers.total(torch.stack([x.double() * steps, x.new_tensor(steps).double()])).unbind()
        return (total / count).to(x)

    def cuts(self, batch: Batch, size: int) -> list[slice]:
        """Return where `batch` is cut into minibatches of at most `size` steps, all learners' together."""
        return cuts(len(batch), batch.at_a_time(size), self.peers)

    def scaled(self, trajectories: Sequence[Trajectory]) -> Sequence[Trajectory]:
        """The trajectories that an update begins with, their rewards divided by the deviation of `discounted_sums`.

        Of all rewards so far and these, over all channels. Sums begin anew with each trajectory: an unroll that is much
        shorter than 1 / (1 - gamma) leaves them, and so the deviation, smaller than they are over whole episodes.
        """
        if not self.config.scale_rewards:
            return trajectories
        sums = []
        for t in trajectories:
            reward = torch.from_numpy(t.reward)
            ended = torch.from_numpy(t.terminated | t.truncated)
            if reward.dim() > ended.dim():
                ended = ended.unsqueeze(-1).expand_as(reward)
            sums.append(discounted_sums(reward, ended, torch.zeros_like(reward[0]), self.config.gamma)[0].flatten())
        self.discounted.update(torch.cat(sums))  # once, as learners that train together have to
        scale = self.discounted.scale
        return [replace(t, reward=scale(torch.from_numpy(t.reward), REWARD_CLIP).numpy()) for t in trajectories]

    def combined(self, advantage: Tensor) -> Tensor:
        """[..., C] as [...]: by the channels' coefficients; in units of the values' deviations where there are any."""
        return weighted_channels(advantage, self.policy.channel_coefficients, self.policy.value_scale)

    def learned_from(self, batch: Batch, target: Callable[[], Tensor]) -> None:
        """End an update: count the steps of all learners' batches, and normalise by them from now on.

        `target` [..., channels] of the value is asked for only where values are normalised. Raises NotFinite where a
        minibatch came to no number that `descend` did not look at.
        """
        if self.late is not None:
            self.late.look()
        with torch.no_grad():
            self.policy.take_in(batch.observation, None if self.policy.value_scale is None else target())
        # Counted last: an update that a lost learner interrupts is made again, and must not count twice.
        self.steps += int(self.peers.total(torch.tensor(batch.steps, dtype=torch.float64)))

    def descend(
        self,
        loss: Tensor,
        terms: Mapping[str, Tensor] | None = None,
        inputs: Mapping[str, Tensor] | None = None,
        minibatch: int = 1,
        steps: int = 1,
    ) -> Tensor:
        """One step of the optimizer down the gradient, cut to `max_grad_norm`; its norm before that.

        Raises NotFinite, having changed nothing, where the loss or the norm is nan or infinite. On a GPU it is raised
        when the update ends (`learned_from`), neither that minibatch nor those after it having changed anything. For
        its message: the loss's `terms`, what they were computed from (`inputs`), and which minibatch of the update it
        is. Of several learners the gradient is that of all their `steps` together, whose mean the loss is.
        """
        gradient = self.parameters.gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        loss_of_all = self.peers.average(gradient, loss.detach(), steps)
        grad_norm: Tensor = torch.linalg.vector_norm(gradient)
        number = loss_of_all + grad_norm  # nan and infinity outlive a sum
        failed: Tensor | None = None
        if self.late is not None and self.peers.size == 1:  # several learners wait for each other at each minibatch
            given = loss.detach(), _detached(terms or {}), _detached(inputs or {}), minibatch
            failed = self.late.failed(number, partial(self._not_finite, *given))
        elif not isfinite(number.item()):
            raise self._not_finite(loss, terms or {}, inputs or {}, minibatch)
        gradient.mul_((self.config.max_grad_norm / (grad_norm + 1e-6)).clamp(max=1.0))
        self.optimizer.step(failed)
        return grad_norm

    def _not_finite(
        self, loss: Tensor, terms: Mapping[str, Tensor], inputs: Mapping[str, Tensor], minibatch: int
    ) -> NotFinite:
        where = f"{self.config.name}, minibatch {minibatch} of the update after {self.steps:,} environment steps"
        return not_finite(where, loss, terms, inputs, self.policy.network)

    def take_teacher(self, teacher: Policy, name: str = "of these weights") -> None:
        """Keep the student near `teacher`, called `name` in messages, from now on; it is not changed.

        Raises ConfigurationError for a teacher of another game, or with a memory.
        """
        check_teacher(name, teacher, self.policy)
        self.teacher = teacher.requires_grad_(False).to(self.policy.device)

    def lessons(self, batch: Batch) -> dict[str, Tensor]:
        """What the teacher would do at each step, as columns of `batch`; {} without one, or when its time is over."""
        if self.teacher is None:
            if self.config.teacher is not None:
                raise ConfigurationError(f"teacher {self.config.teacher!r} was not loaded; give it by take_teacher()")
            return {}
        return lessons(self.teacher, batch) if self.config.coefficient(self.steps) > 0 else {}

    def with_teacher(
        self, loss: Tensor, terms: dict[str, Tensor], output: Any, columns: Mapping[str, Tensor]
    ) -> Tensor:
        """`loss` with the teacher's term, where `columns` have lessons; the divergence is put into `terms`.

        `output`: the student's own, of `Evaluated`, at the steps of `columns`.
        """
        divergence = imitation(self.policy, output, columns, self.config.teacher_heads)
        if divergence is None:
            return loss
        terms["teacher_kl"] = divergence.detach()
        return loss + self.config.coefficient(self.steps) * divergence

    def set_learning_rate(self) -> float:
        """Set the optimizer by its settings as they are by now, and return its learning rate."""
        config, optimizer = self.config, self.optimizer
        learning_rate = config.learning_rate
        if config.anneal_steps is not None:
            learning_rate *= Linear(1.0, config.anneal_to, config.anneal_steps)(self.steps)
        optimizer.beta1, optimizer.beta2, optimizer.epsilon = config.adam_beta1, config.adam_beta2, config.adam_epsilon
        optimizer.learning_rate = learning_rate
        return learning_rate

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Adam's moments by parameter, the shuffling generator, and the count of steps."""
        tensors = {"generator": self.generator.get_state()}
        if state := self.optimizer.state:  # empty before the first update
            tensors |= {f"adam.step.{name}": state["step"].clone() for name in self.parameters.names}
            for key in MOMENTS:
                tensors |= {f"adam.{key}.{name}": part for name, part in self.parameters.split(state[key])}
        if self.config.scale_rewards:
            tensors |= {f"discounted.{name}": tensor for name, tensor in self.discounted.state_dict().items()}
        return tensors, {"steps": self.steps}

    def load_state(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        """Continues from what `state` returned; the policy's weights are loaded apart from it."""
        self.steps = int(scalars["steps"])
        self.generator.set_state(tensors["generator"])
        if "discounted.count" in tensors:  # a run that scales rewards only from now on has none yet
            names = self.discounted.state_dict()
            self.discounted.load_state_dict({name: tensors[f"discounted.{name}"] for name in names})
        values = self.parameters.values
        self.optimizer.state = {}
        steps = [tensors[key] for name in self.parameters.names if (key := f"adam.step.{name}") in tensors]
        if steps:
            moments = {key: torch.zeros_like(values) for key in MOMENTS}
            self.optimizer.state = {"step": steps[0].to(values.device, copy=True), **moments}
            for key, moment in moments.items():
                for name, part in self.parameters.split(moment):
                    if f"adam.{key}.{name}" in tensors:  # one that no gradient had reached has none
                        part.copy_(tensors[f"adam.{key}.{name}"])


def _detached(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in tensors.items()}
