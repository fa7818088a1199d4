"""Random network distillation (Burda et al. 2018): a bonus for steps that lead to observations seldom seen before.

A predictor learns to output what a fixed random network, the target, outputs. Its error is large at observations unlike
those that it has learned from. The error at the observation that a step leads to, divided by the deviation of its
discounted sums, is the step's bonus, which is added to its reward. An episode's last step has none: the observation
after it is in no trajectory.

Both networks, the moments and the optimizer belong to the learner and are in its checkpoints; they are never published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from agents.algorithms.descent import Descent
from agents.algorithms.numbers import not_finite
from agents.algorithms.optimizers import OptimizerConfig
from agents.algorithms.peers import ALONE, InFull, Peers, cuts
from agents.algorithms.reward_scaling import RewardScaling
from agents.algorithms.settings import AlgorithmConfig, Allowed, Scheduled
from agents.networks import Heads, Network, build_network
from agents.networks.network import flatten_steps
from agents.operators.normalization import RunningMoments
from agents.policies import Policy
from agents.spaces import Leaves, SpaceTree, is_image
from agents.trajectories import Trajectory
from warren.errors import CheckpointError, ConfigurationError, NotFinite
from warren.trees import map_tree, take

CLIP = 5.0  # deviations from the mean that an observation is cut to
KEY = "rnd."  # before the names of its tensors in an algorithm's state
PERCEPTRON = {"name": "mlp", "hidden_sizes": [64, 64], "activation": "relu"}
CONVOLUTIONS = {"name": "impala_resnet"}  # takes images of any size
FIXED = ("rnd_network", "rnd_features")


@dataclass(frozen=True)
class RNDConfig(AlgorithmConfig):
    """Settings of random network distillation; with a coefficient of 0 there is no bonus."""

    rnd_coefficient: Scheduled = 0.0  # weight in the reward of the bonus for observations seldom seen; 0: no bonus
    rnd_learning_rate: float = 1e-4  # of the predictor, by Adam
    rnd_minibatch_size: int = 256  # steps at most; the predictor learns from each step once
    rnd_features: int = 64  # numbers that target and predictor output
    rnd_network: Mapping[str, Any] = field(default_factory=dict)  # of both; {}: mlp [64, 64], images: impala_resnet

    def scheduled(self) -> tuple[str, ...]:
        return (*super().scheduled(), "rnd_coefficient")

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "rnd_coefficient": ("at least 0", self.all_of("rnd_coefficient", lambda x: x >= 0)),
            "rnd_learning_rate": ("above 0 and at most 1", 0 < self.rnd_learning_rate <= 1),
            "rnd_minibatch_size": ("at least 1", self.rnd_minibatch_size >= 1),
            "rnd_features": ("at least 1", self.rnd_features >= 1),
        }


class RandomDistillation:
    """The target and the predictor for the observations of a policy."""

    def __init__(self, policy: Policy, config: RNDConfig, generator: torch.Generator) -> None:
        """Build both networks with weights drawn by `generator`.

        Raises ConfigurationError for networks that cannot be built, and for a policy with several values.
        """
        if policy.channels:
            raise ConfigurationError(
                f"rnd_coefficient={config.rnd_coefficient} of {config.name}: the bonus is added to one reward, and "
                f"with env.channel_values there are {len(policy.channels)}; leave out one of the two"
            )
        tree = SpaceTree(policy.learning_space, "observation")
        self._policy = policy
        self._boxes = [name for name, leaf in tree.leaves.items() if isinstance(leaf, spaces.Box)]
        moments = nn.ModuleList(RunningMoments(tree.leaves[name].shape or ()) for name in self._boxes)
        target, predictor = (_network(tree, config, generator) for _ in range(2))
        parts = {"moments": moments, "target": target.requires_grad_(False), "predictor": predictor}
        self._module = nn.ModuleDict(parts).to(policy.device)
        self._descent = Descent(predictor, OptimizerConfig(learning_rate=config.rnd_learning_rate))
        self._sums = RewardScaling()  # the deviation of the errors' discounted sums
        self._peers: Peers = ALONE
        self.metrics: dict[str, float] = {}  # of the last update

    def take_peers(self, peers: Peers) -> None:
        """Train together with `peers` from now on."""
        self._peers = InFull(peers)
        for part in (*self._module.modules(), self._sums.moments):
            if isinstance(part, RunningMoments):
                part.total = None if peers is ALONE else peers.total

    def state(self) -> dict[str, Tensor]:
        """Return networks, moments and the optimizer's state by KEY and name."""
        tensors = {**self._module.state_dict(), **self._descent.state(), **self._sums.state()}
        return {KEY + name: tensor for name, tensor in tensors.items()}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned. Raises CheckpointError for other networks."""
        found = {name.removeprefix(KEY): tensor for name, tensor in tensors.items() if name.startswith(KEY)}
        shapes = {name: tensor.shape for name, tensor in self._module.state_dict().items()}
        if shapes != {name: tensor.shape for name, tensor in found.items() if name.partition(".")[0] in self._module}:
            raise CheckpointError(
                f"its networks of random distillation are others; resume with the {' and '.join(FIXED)} that it began "
                "with"
            )
        self._module.load_state_dict({name: found[name] for name in shapes})
        self._descent.load_state(found)
        self._sums.load_state(found)

    def rewarded(
        self,
        trajectories: Sequence[Trajectory],
        coefficient: float,
        gamma: float,
        config: RNDConfig,
        generator: torch.Generator,
    ) -> Sequence[Trajectory]:
        """Return the trajectories with `coefficient` times the bonus in their rewards; learn from them after that.

        The observations of their steps are counted among the moments first. `gamma`: the discount; `generator` orders
        the predictor's minibatches. Raises NotFinite.
        """
        seen = [self._observations(t) for t in trajectories]
        seen = map_tree(lambda *parts: torch.cat(parts), *seen)
        learned = torch.from_numpy(np.concatenate([_taken(t).ravel() for t in trajectories])).nonzero()[:, 0]
        self._count(seen, learned, config.rnd_minibatch_size)
        wanted, error = self._compared(seen, config.rnd_minibatch_size)
        errors = error.cpu().numpy()
        bonuses, start = [], 0
        for t in trajectories:
            steps, slots = t.terminated.shape
            after = errors[start : start + (steps + 1) * slots].reshape(steps + 1, slots)[1:]
            start += (steps + 1) * slots
            bonuses.append(replace(t, reward=np.where(_goes_on(t), after, 0).astype(np.float32)))
        scaled = self._sums.scaled(bonuses, gamma)
        loss = self._learn(seen, wanted, learned, config, generator)
        total = sum(float(bonus.reward.sum()) for bonus in scaled)
        self.metrics = {"rnd_bonus": total / len(learned), "rnd_loss": loss}
        added = zip(trajectories, scaled, strict=True)
        return [replace(t, reward=t.reward + np.float32(coefficient) * bonus.reward) for t, bonus in added]

    def _observations(self, trajectory: Trajectory) -> Leaves:
        """Return the observations of all steps and the one after the last, leaves [(T + 1) * N, ...]."""
        tree = map_tree(
            lambda steps, last: np.concatenate([steps, last[None]]),
            trajectory.observation,
            trajectory.last["observation"],
        )
        return flatten_steps(self._policy.leaves(tree))

    def _count(self, seen: Leaves, learned: Tensor, size: int) -> None:
        """Add the `learned` rows of `seen` to the moments."""
        for cut in cuts(len(learned), size, self._peers):
            part = take(seen, learned[cut].to(self._policy.device))
            for name, moments in self._moments():
                moments.update(part if isinstance(part, Tensor) else part[name])

    @torch.no_grad()
    def _compared(self, seen: Leaves, size: int) -> tuple[Tensor, Tensor]:
        """Return (the target's outputs [B, features], the predictor's mean squared error [B]) of all rows."""
        wanted, errors = [], []
        rows = len(seen if isinstance(seen, Tensor) else next(iter(seen.values())))
        for start in range(0, rows, size):
            part = self._normalized(take(seen, slice(start, start + size)))
            wanted.append(self._output("target", part))
            errors.append((self._output("predictor", part) - wanted[-1]).square().mean(-1))
        return torch.cat(wanted), torch.cat(errors)

    def _learn(
        self, seen: Leaves, wanted: Tensor, learned: Tensor, config: RNDConfig, generator: torch.Generator
    ) -> float:
        """Make the predictor's steps on the `learned` rows, in any order; return the mean loss."""
        descent, losses = self._descent, list[Tensor]()
        descent.optimizer.learning_rate = config.rnd_learning_rate
        order = learned[torch.randperm(len(learned), generator=generator)].to(self._policy.device)

        def error(loss: Tensor, terms: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> NotFinite:
            where = f"{config.name}, minibatch {len(losses) + 1} of the predictor of random distillation"
            return not_finite(where, loss, terms, inputs, self._module["predictor"])

        for cut in cuts(len(order), config.rnd_minibatch_size, self._peers):
            rows = order[cut]
            output = self._output("predictor", self._normalized(take(seen, rows)))
            loss = (output - wanted[rows]).square().mean()
            descent.step(loss, len(rows), self._peers, None, {"rnd_loss": loss}, {"output": output}, error)
            losses.append(loss.detach())
        if descent.late is not None:
            descent.late.look()
        return torch.stack(losses).mean().item()

    def _moments(self) -> list[tuple[str, RunningMoments]]:
        moments = cast(nn.ModuleList, self._module["moments"])
        return [(name, cast(RunningMoments, part)) for name, part in zip(self._boxes, moments, strict=True)]

    def _normalized(self, seen: Leaves) -> Leaves:
        normal = {
            name: moments.normalize((seen if isinstance(seen, Tensor) else seen[name]).float(), CLIP)
            for name, moments in self._moments()
        }
        return normal.get("", seen) if isinstance(seen, Tensor) else seen | normal

    def _output(self, name: str, observation: Leaves) -> Tensor:
        return cast(Tensor, cast(Network, self._module[name]).act(observation, {})[0])


def _network(tree: SpaceTree, config: RNDConfig, generator: torch.Generator) -> Network:
    """Return a network for normalised observations; of images, too, the numbers are then floats."""
    given = config.rnd_network
    default = CONVOLUTIONS if any(map(is_image, tree.leaves.values())) else PERCEPTRON
    settings = {**(default if given.get("name") in (None, default["name"]) else {}), **given}
    if ":" not in str(settings.get("name", "")):
        settings.setdefault("policy_gain", 1.0)  # outputs as large as the inputs, not nearly 0 as first actions
    leaves: dict[str, gymnasium.Space[Any]] = {
        name: spaces.Box(-CLIP, CLIP, leaf.shape, np.float32) if isinstance(leaf, spaces.Box) else leaf
        for name, leaf in tree.leaves.items()
    }
    space = leaves[""] if tree.bare else spaces.Dict(leaves)
    network = build_network(settings, space, Heads({"": config.rnd_features}, values=0), generator)
    if network.memory:
        raise ConfigurationError(f"rnd_network of {config.name}: it has no memory here; leave out its core")
    return network


def _taken(trajectory: Trajectory) -> np.ndarray:
    """Return bool [T + 1, N]: the observations at which an agent took a step of the trajectory."""
    taken = np.zeros((len(trajectory.terminated) + 1, trajectory.num_slots), bool)
    taken[:-1] = True if trajectory.valid is None else trajectory.valid
    return taken


def _goes_on(trajectory: Trajectory) -> np.ndarray:
    """Return bool [T, N]: the steps after which the episode goes on."""
    goes_on: np.ndarray = ~(trajectory.terminated | trajectory.truncated)
    return goes_on if trajectory.valid is None else goes_on & trajectory.valid
