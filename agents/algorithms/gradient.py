"""Base of algorithms that follow a gradient: the parts of their `update`, and a state to resume from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from agents.algorithms.anchors import LAST, MAGNET, PREFIXES, distributions, divergence
from agents.algorithms.at_once import AtOnce
from agents.algorithms.base import ConfiguredAlgorithm
from agents.algorithms.batches import Batch, Minibatch, without_idle_slots
from agents.algorithms.burn_in import BurnInConfig
from agents.algorithms.contract import Update
from agents.algorithms.descent import Descent
from agents.algorithms.gradient_config import GradientConfig
from agents.algorithms.magnet import Followed, Magnet, follow
from agents.algorithms.peers import Peers, cuts, standardized
from agents.algorithms.reward_scaling import RewardScaling
from agents.algorithms.rnd import FIXED, KEY, RandomDistillation
from agents.algorithms.teacher import check_heads, check_teacher, imitation
from agents.operators.unrolls import weighted_channels
from agents.policies import Policy
from agents.trajectories import Trajectory
from warren.errors import ConfigurationError, NotFinite

__all__ = ["GradientAlgorithm", "GradientConfig"]

C = TypeVar("C", bound=GradientConfig)


class GradientAlgorithm(ConfiguredAlgorithm[C]):
    """Trains `policy` in place; `seed` decides the order of minibatches."""

    fixed: ClassVar[tuple[str, ...]] = (*ConfiguredAlgorithm.fixed, *FIXED)
    by_chance: ClassVar[bool] = False  # True: the loss is of actions' log-probabilities, so actions have to be drawn

    def __init__(self, policy: Policy, config: C, seed: int) -> None:
        """Raise ConfigurationError for a policy that this never changes, and for wrong `teacher_heads`."""
        if self.by_chance:
            check_policy(config.name, policy)
        super().__init__(policy, config, seed)
        if isinstance(config, BurnInConfig):
            self.needs = replace(self.needs, burn_in=config.burn_in)
        self.teacher: Policy | None = None
        self.magnet: Magnet | None = None  # begins with the weights before the first update with a coefficient
        check_heads(config.name, config, policy)
        self.descent = Descent(policy, config)
        self.rewards = RewardScaling()
        self.distillation = None if config.rnd_coefficient == 0 else self._new_distillation()

    # Called by the learner in addition to `update`: see `Algorithm`.

    def take_peers(self, peers: Peers) -> None:
        """Train together with `peers` from now on: the same weights, each learner on its share of every update."""
        super().take_peers(peers)
        self.rewards.moments.total = self.total
        if self.distillation is not None:
            self.distillation.take_peers(peers)

    def take_teacher(self, teacher: Policy, name: str = "of these weights") -> None:
        """Keep the student near `teacher`, called `name` in messages, from now on; the teacher does not change.

        Raises ConfigurationError for a teacher of another game, or with a memory.
        """
        check_teacher(name, teacher, self.policy, self.config.teacher_heads)
        self.teacher = teacher.requires_grad_(False).to(self.policy.device)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return (tensors, scalars) to resume from.

        The tensors are the optimizer's moments by parameter, the shuffling generator, the rewards' moments, the magnet
        and the networks of random distillation; the scalars are the count of steps and the magnet's count of updates.
        """
        tensors = {"generator": self.generator.get_state()} | self.descent.state()
        if self.config.scale_rewards:
            tensors |= self.rewards.state()
        if self.distillation is not None:
            tensors |= self.distillation.state()
        if self.magnet is None:
            return tensors, {"steps": self.steps}
        return tensors | self.magnet.state(), {"steps": self.steps, "magnet_age": self.magnet.age}

    def load_state(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        """Continue from what `state` returned; the policy's weights are loaded separately.

        Raises CheckpointError where it has other networks of random distillation.
        """
        if any(name.startswith(KEY) for name in tensors):  # a run may begin to give a bonus later, or end it
            self.distillation = self.distillation or self._new_distillation()
            self.distillation.load_state(tensors)
        self.steps = int(scalars["steps"])
        self.generator.set_state(tensors["generator"])
        self.rewards.load_state(tensors)
        self.descent.load_state(tensors)
        self.magnet = Magnet.from_state(self.policy, tensors, int(scalars.get("magnet_age", 0)))

    # Parts of `update`.

    @property
    def entropy_coefficient(self) -> float:
        """Return the coefficient of the entropy bonus at the present number of steps."""
        return self.config.entropy_at(self.steps, self.progress)

    def set_learning_rate(self) -> float:
        """Set the optimizer's settings to those of the present number of steps; return its learning rate."""
        rate = self.config.learning_rate_at(self.steps, self.progress)
        self.descent.configure(self.config, rate)
        return rate

    def scaled(self, trajectories: Sequence[Trajectory]) -> Sequence[Trajectory]:
        """Return an update's trajectories without slots where no agent decides, with rewards as they are learned from.

        They are scaled if `scale_rewards`, and the bonus of random distillation is added. Call it once per update.
        """
        config, coefficient = self.config, self._rnd_coefficient
        trajectories = without_idle_slots(trajectories, self.needs.burn_in)
        if not trajectories:
            return trajectories
        if config.scale_rewards:
            trajectories = self.rewards.scaled(trajectories, config.gamma)
        if coefficient > 0:
            self.distillation = self.distillation or self._new_distillation()
            return self.distillation.rewarded(trajectories, coefficient, config.gamma, config, self.generator)
        if self.distillation is not None:
            self.distillation.metrics = {}
        return trajectories

    def cuts(self, batch: Batch, size: int) -> list[slice]:
        """Return where to cut `batch` into minibatches of at most `size` steps, counting all learners' together."""
        return cuts(len(batch), batch.at_a_time(size), self.peers)

    def standardize(self, x: Tensor) -> Tensor:
        """Return `x` [...], of any shape, with mean 0 and deviation 1 over this minibatch of all learners."""
        return standardized(x, self.peers)

    def mean(self, x: Tensor, steps: int) -> Tensor:
        """Return the mean of the scalar `x`, itself a mean over `steps`, over this minibatch of all learners."""
        if self.peers.size == 1:
            return x
        total, count = self.peers.total(torch.stack([x.double() * steps, x.new_tensor(steps).double()])).unbind()
        return (total / count).to(x)

    def combined(self, advantage: Tensor) -> Tensor:
        """Return advantages [..., C] as [...], weighted by the channels' coefficients.

        Where values are normalised, advantages are in units of the values' deviations.
        """
        return weighted_channels(advantage, self.policy.channel_coefficients, self.policy.value_scale)

    def lessons(self, batch: Batch) -> dict[str, Tensor]:
        """Return the distributions of teacher, magnet and present policy at each step, as columns: name -> [B, ...].

        Call it once per update, at the beginning. Raises ConfigurationError as `anchors` does.
        """
        columns: dict[str, Tensor] = {}
        for name, anchor in self.anchors().items():
            columns |= distributions(anchor, batch, PREFIXES[name])
        return columns

    def anchors(self) -> dict[str, Policy]:
        """Return the teacher, the magnet and the present policy, without those whose coefficient is 0.

        Raises ConfigurationError where the settings name a teacher that was not loaded.
        """
        if self.teacher is None and self.config.teacher is not None:
            raise ConfigurationError(f"teacher {self.config.teacher!r} was not loaded; give it by take_teacher()")
        found: dict[str, Policy] = {}
        if self.teacher is not None and self.anchor_coefficient("teacher") > 0:
            found["teacher"] = self.teacher
        if self.anchor_coefficient("magnet") > 0:
            self.magnet = self.magnet or Magnet(self.policy)
            found["magnet"] = self.magnet.policy
        if self.anchor_coefficient("proximal") > 0:
            found["proximal"] = self.policy
        return found

    def anchor_coefficient(self, name: str) -> float:
        """Return the present coefficient of the divergence from the teacher, the magnet or the last policy."""
        if name == "teacher":
            return self.config.coefficient(self.steps, self.progress)
        schedule = self.config.schedules.get(f"{name}_coefficient")
        return 0.0 if schedule is None else schedule.at(self.steps, self.progress)

    def at_once(self, batch: Batch | Minibatch) -> AtOnce | None:
        """Return an AtOnce that computes the loss of `batch` and its gradient in one pass; None where torch has to."""
        return AtOnce.of(self.policy, self.descent.parameters.gradient, batch)

    def anchored(self, columns: Collection[str], taken: Collection[str] = ()) -> dict[str, float] | None:
        """Return the coefficients of the anchors among `columns` by the names of PREFIXES.

        None where torch has to compute the loss: for other columns than these and `taken`, and for `teacher_heads`.
        """
        found = {name: self.anchor_coefficient(name) for name, prefix in PREFIXES.items() if prefix in columns}
        if set(columns) != {PREFIXES[name] for name in found} | set(taken):
            return None
        return None if "teacher" in found and self.config.teacher_heads is not None else found

    def with_teacher(
        self, loss: Tensor, terms: dict[str, Tensor], output: Any, columns: Mapping[str, Tensor]
    ) -> Tensor:
        """Return `loss`, a scalar, plus a term for each anchor in `columns` (see `lessons`); `terms` gets their KL.

        KL(teacher || student), KL(policy || magnet), KL(policy || policy at the update's beginning), each times its
        coefficient. `output`: the learning policy's `Evaluation.output` at the steps of `columns`.
        """
        policy = self.policy
        found = (
            ("teacher", imitation(policy, output, columns, self.config.teacher_heads)),
            ("magnet", divergence(policy, output, MAGNET, columns)),
            ("proximal", divergence(policy, output, LAST, columns)),
        )
        for name, kl in found:
            if kl is not None:
                terms[f"{name}_kl"] = kl.detach()
                loss = loss + self.anchor_coefficient(name) * kl
        return loss

    def descend(
        self,
        loss: Tensor,
        terms: Mapping[str, Tensor] | None = None,
        inputs: Mapping[str, Tensor] | None = None,
        minibatch: int = 1,
        steps: int = 1,
    ) -> Tensor:
        """Make one optimizer step down the gradient of `loss`, a scalar; return the gradient's norm before clipping.

        It is clipped to `max_grad_norm`.

        Raises NotFinite, having changed nothing, where the loss or the norm is NaN or infinite. On a GPU it is raised
        when the update ends (`learned_from`); neither that minibatch nor later ones have changed anything then. Its
        message describes the loss's `terms`, the `inputs` that they were computed from, and the number of the
        `minibatch` in the update. With several learners the gradient is the mean over all their `steps`, and `loss` is
        the mean over this learner's.
        """

        def error(loss: Tensor, terms: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> NotFinite:
            return self.not_finite(f"minibatch {minibatch}", loss, terms, inputs, self.policy.network)

        return self.descent.step(loss, steps, self.peers, self.config.max_grad_norm, terms or {}, inputs or {}, error)

    def learned_from(self, batch: Batch, target: Callable[[], Tensor | None]) -> None:
        """End an update: count the steps of all learners' batches and add the batch to the running moments.

        `target`: returns the value's targets [..., channels], or None; called only where values are normalised. Raises
        NotFinite for a minibatch whose check `descend` has put off.
        """
        if self.descent.late is not None:
            self.descent.late.look()
        with torch.no_grad():
            wanted = None if self.policy.value_scale is None else target()
            self.policy.take_in(batch.valid(batch.observation), None if wanted is None else batch.valid(wanted))
        self.count(batch.steps)
        follow(self.followed())

    def result(self, metrics: Mapping[str, float], learning_rate: float) -> Update:
        """Return an update's result: its `metrics`, the learning rate, and what `scaled` tells of the bonus."""
        told = {} if self.distillation is None else self.distillation.metrics
        return Update({**metrics, "learning_rate": learning_rate, **told})

    def count(self, steps: int) -> None:
        """Count an update's steps, of all learners; last, since a lost learner interrupts it, and it is made again."""
        self.steps += int(self.peers.total(torch.tensor(steps, dtype=torch.float64)))

    @property
    def _rnd_coefficient(self) -> float:
        return self.config.schedules["rnd_coefficient"].at(self.steps, self.progress)

    def _new_distillation(self) -> RandomDistillation:
        generator = torch.Generator().manual_seed(self.generator.initial_seed())
        made = RandomDistillation(self.policy, self.config, generator)
        made.take_peers(self.peers)
        return made

    def followed(self) -> list[Followed]:
        """Return what the magnet follows, for `magnet.follow`; [] without a magnet."""
        magnet = self.magnet
        return [] if magnet is None else [Followed(magnet, self.policy, self.descent.parameters.values, self.config)]


def check_policy(name: str, policy: Policy) -> None:
    """Raise ConfigurationError for a policy whose actions, or parts of them, are not drawn: they would never change."""
    fixed = sorted({type(part).__name__ for _, part in policy.distribution.named_parts() if not part.has_chance})
    if fixed:
        raise ConfigurationError(
            f"algorithm: {name!r} changes the probabilities of actions, and a {' and a '.join(fixed)} over "
            f"{policy.action_space} has none; leave out network.discrete_actions.greedy and "
            "network.box_actions.deterministic, which are for algorithms with a replay"
        )
