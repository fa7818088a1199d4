"""From settings and spaces to a policy: a distribution for each leaf of the action space, and a network for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from agents.configuration import parse
from agents.networks import (
    Heads,
    NormalizationConfig,
    Normalized,
    PrivilegedConfig,
    acting_space,
    build_asymmetric,
    build_network,
)
from agents.networks.images import divide_images
from agents.networks.normalized import IMAGES
from agents.operators.blocks import UNIFORM
from agents.policies.bounded import Deterministic, StateGaussian
from agents.policies.categorical import Categorical, MultiCategorical
from agents.policies.distribution import Distribution
from agents.policies.gaussian import Gaussian, SquashedGaussian
from agents.policies.greedy import Greedy
from agents.policies.parts import Parts
from agents.policies.policy import Policy
from agents.spaces import SpaceTree
from warren.errors import ConfigurationError, unknown_name
from warren.user_code import blame, call, find


@dataclass(frozen=True)
class BoxActionsConfig:
    """Settings `box_actions` of any network: how actions of a Box are drawn."""

    squashed: bool = False  # tanh of a gaussian, stretched to the bounds, instead of one that is clipped to them
    initial_std: float = 1.0  # deviation of the gaussian at the beginning
    state_std: bool = False  # the network gives the deviation too, for each state (SAC); only if squashed
    deterministic: bool = False  # tanh of the output, stretched to the bounds, without chance (DDPG, TD3)

    def __post_init__(self) -> None:
        problems = []
        if not 0 < self.initial_std < math.inf:
            problems.append(f"initial_std={self.initial_std} of box_actions must be above 0 and finite")
        if self.state_std and not self.squashed:
            problems.append("state_std of box_actions is for squashed ones; set box_actions.squashed=true with it")
        if self.deterministic and self.squashed:
            problems.append("box_actions are squashed or deterministic, not both; leave out one of the two")
        if problems:
            raise ConfigurationError(problems)


@dataclass(frozen=True)
class DiscreteActionsConfig:
    """Settings `discrete_actions` of any network: how Discrete actions are drawn."""

    greedy: bool = False  # outputs are values of the actions, and the best one is taken (DQN); else logits
    quantiles: int = 1  # outputs of each action of a greedy policy, whose mean is its value (QR-DQN)

    def __post_init__(self) -> None:
        if self.quantiles < 1 or (self.quantiles > 1 and not self.greedy):
            raise ConfigurationError(
                f"quantiles={self.quantiles} of discrete_actions must be at least 1, and 1 unless greedy=true"
            )


@dataclass(frozen=True)
class ValueConfig:
    """The setting `value` of any network."""

    value: bool = True  # false: no value is computed, for algorithms whose critics are not in the policy


@dataclass(frozen=True)
class DistributionConfig:
    """The setting `distribution`, which any network has."""

    # Your own, {name: FILE.py:build} and its settings; where actions are a Dict or Tuple: leaf -> such a table
    distribution: Mapping[str, Any] = field(default_factory=dict)


def build_policy(
    network_config: Mapping[str, Any],
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    seed: int,
    reward_channels: int | Mapping[str, float] = 1,
) -> Policy:
    """Build a policy for these spaces, with a distribution for each leaf of the action space.

    Discrete actions are categorical, MultiDiscrete and MultiBinary ones several categoricals, Box ones gaussian.
    `network_config`: `name` and settings of the network, `box_actions`, `discrete_actions`, a `distribution` of the
    user's own, `value`, `privileged`, and those of NormalizationConfig.

    `seed` decides the initial weights and the actions drawn. `reward_channels`: the number of channels with a value
    each, or name -> coefficient (empty: one reward). Raises ConfigurationError for a network's unknown name or
    settings and for spaces that no policy takes.
    """
    settings = dict(network_config)
    box = parse(BoxActionsConfig, "box_actions", settings.pop("box_actions", {}))
    discrete = parse(DiscreteActionsConfig, "discrete_actions", settings.pop("discrete_actions", {}))
    valued = parse(ValueConfig, "network", {"value": settings.pop("value", True)}).value
    given = {each.name: settings.pop(each.name) for each in fields(NormalizationConfig) if each.name in settings}
    privileged = parse(PrivilegedConfig, "network", {"privileged": settings.pop("privileged", ())}).privileged
    normalization = parse(NormalizationConfig, "network", given)
    tree = SpaceTree(action_space, "action")
    own = _own(tree, settings.pop("distribution", None) or {})
    leaves = {name: own.get(name) or _distribution(name, leaf, box, discrete) for name, leaf in tree.leaves.items()}
    distribution = leaves[""] if tree.bare else Parts(tree, leaves)
    if not valued and normalization.normalize_values:
        raise ConfigurationError("network.value: false leaves no value for `normalize_values`; leave it out")
    values = reward_channels if isinstance(reward_channels, int) else max(1, len(reward_channels))
    heads = Heads({name: leaf.size for name, leaf in leaves.items()}, tree.bare, values if valued else 0)
    if discrete.greedy and settings.get("name", "mlp") == "mlp" and settings.get("initialization") is None:
        settings["initialization"] = UNIFORM  # the peers' choice; DQN learned far slower from orthogonal layers
    generator = torch.Generator().manual_seed(seed)
    visible = acting_space(observation_space, privileged)
    if visible is observation_space:
        network = build_network(settings, observation_space, heads, generator)
    else:
        network = build_asymmetric(settings, observation_space, visible, heads, generator)
    if normalization.divide_images_by != IMAGES:
        divide_images(network, normalization.divide_images_by)
    if normalization.normalize_observations or normalization.normalize_values:
        network = Normalized(network, SpaceTree(observation_space, "observation"), values, normalization)
    channels = {} if isinstance(reward_channels, int) else reward_channels
    divisor = normalization.divide_images_by
    return Policy(distribution, network, visible, action_space, seed, channels, observation_space, divisor)


def _own(tree: SpaceTree, config: Mapping[str, Any]) -> dict[str, Distribution]:
    """Return the user's own distributions by leaf. Raises ConfigurationError."""
    tables = parse(DistributionConfig, "network", {"distribution": config}).distribution
    if tree.bare:
        tables = {"": tables} if tables else {}
    if unknown := [name for name in tables if name not in tree.leaves]:
        kind = "part of the actions in distribution of the network"
        raise ConfigurationError([unknown_name(kind, name, tree.leaves) for name in unknown])
    return {name: _built(table, tree.leaves[name]) for name, table in tables.items()}


def _built(table: Any, leaf: gymnasium.Space[Any]) -> Distribution:
    settings = dict(table) if isinstance(table, Mapping) else {}
    name = settings.pop("name", None)
    if not isinstance(name, str) or ":" not in name:
        raise ConfigurationError(
            f"distribution of the network: {table!r} names none; give name=path/to/file.py:build and its settings"
        )
    with blame(f"distribution {name!r}"):
        made = call(f"distribution {name!r}", find("distribution", name), settings, leaf)
    if not isinstance(made, Distribution):
        raise ConfigurationError(
            f"distribution {name!r} made a {type(made).__name__}, not an agents.policies.Distribution"
        )
    if getattr(made, "size", 0) < 1:
        raise ConfigurationError(f"distribution {name!r} does not say by `size` how many numbers it needs; set it")
    return made


def _distribution(
    name: str, space: gymnasium.Space[Any], box: BoxActionsConfig, discrete: DiscreteActionsConfig
) -> Distribution:
    """Return the distribution over one leaf. Raises ConfigurationError."""
    match space:
        case spaces.Discrete():
            if discrete.greedy:
                return Greedy(int(space.n), int(space.start), discrete.quantiles)
            return Categorical(int(space.n), int(space.start))
        case spaces.MultiDiscrete():
            return MultiCategorical(space.nvec.ravel().tolist(), space.start, space.shape, space.dtype)
        case spaces.MultiBinary():
            return MultiCategorical([2] * int(np.prod(space.shape)), 0, space.shape, space.dtype)
        case spaces.Box() if space.dtype.kind == "f":
            if not box.squashed and not box.deterministic:
                return Gaussian(space.low, space.high, box.initial_std)
            if not space.is_bounded():
                raise ConfigurationError(
                    f"action space {space} has no bounds to squash into; leave out box_actions.squashed and "
                    "box_actions.deterministic, or give it bounds (gymnasium.wrappers.RescaleAction)"
                )
            if box.deterministic:
                return Deterministic(space.low, space.high)
            if box.state_std:
                return StateGaussian(space.low, space.high, box.initial_std)
            return SquashedGaussian(space.low, space.high, box.initial_std)
        case _:
            raise ConfigurationError(
                f"action space {space}{f' of {name!r}' if name else ''} is a Box of whole numbers, which no policy "
                "draws; make it MultiDiscrete (gymnasium.wrappers.TransformAction), or a Box of floats"
            )
