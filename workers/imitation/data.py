"""The recorded games that are imitated: found by the setting `imitation.data`, and fitted to the policy that learns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.policies import Policy
from agents.spaces import SpaceTree
from agents.trajectories.checks import wrong_numbers
from agents.trees import ArraySpec, Spec, problems
from envs.masks import Masks
from warren.errors import ConfigurationError, ReplayError
from warren.trees import Tree, map_tree
from workers.config.imitation import ImitationConfig
from workers.replays import episodes, match_episodes, minari
from workers.replays.episodes import Episodes


def read(settings: ImitationConfig) -> Episodes:
    """Read the recorded games. Raises ConfigurationError, which names the setting, if there are none."""
    assert settings.data is not None  # the configuration was verified
    path = Path(settings.data)
    try:
        if (dataset := minari.file_in(path)) is not None:
            found = minari.read(dataset, settings.games)
        elif path.is_dir():
            found = match_episodes.decisions(path, settings.player, settings.games)
        else:
            found = episodes.read(path)
    except ReplayError as error:
        raise ConfigurationError(f"imitation.data: {error}") from None
    return found if settings.games is None else found.first(settings.games)


@dataclass(frozen=True)
class Games:
    """S decisions of E games as a policy learns from them."""

    observation: Tree  # [S, ...], as trajectories hold it
    action: Tree  # [S, ...], as the policy draws it
    action_mask: Tree | None  # bool [S, A], or leaf name -> such an array
    starts: np.ndarray  # int64 [E]
    ends: np.ndarray  # int64 [E]

    def decisions(self, games: np.ndarray) -> np.ndarray:
        """Return the places of all decisions of `games` int64 [K], game after game, int64 [...]."""
        return np.concatenate([np.arange(self.starts[game], self.ends[game]) for game in games.tolist()])


def fitted(found: Episodes, policy: Policy, masked: bool, env: str) -> Games:
    """Return the games as `policy` learns from them; `masked`: its environment, `env`, says which actions are legal.

    Raises ConfigurationError, with all problems, for games of another environment.
    """
    spec, steps = policy.spec(masked), (len(found.reward),)
    mask = _masks(found, policy) if masked and spec.action_mask is not None else None
    wrong: list[str] = []
    observation = action = None
    try:
        tree = SpaceTree(policy.learning_space, "observation")
        observation = _cast(spec.observation, tree.unflatten(_named(found.observation, tree, "observation")))
        wrong += problems(spec.observation, observation, steps, "observation")
    except ConfigurationError as error:
        wrong += error.problems
    try:
        actions = SpaceTree(policy.action_space, "action")
        action = policy.own_action(_named(found.action, actions, "action"))
        wrong += problems(spec.action, action, steps, "action")
    except ConfigurationError as error:
        wrong += error.problems
    if spec.action_mask is not None:
        wrong += problems(spec.action_mask, mask, steps, "action_mask")
    if not wrong:
        data = {"observation": observation, "action": action, "action_mask": mask, "reward": found.reward}
        wrong += [problem.removeprefix("trajectory field ") for problem in wrong_numbers(data)]
    if wrong:
        of = f" (of {found.env})" if found.env else ""
        raise ConfigurationError(
            f"imitation.data: {found.source}{of} does not fit {env}: {'; '.join(wrong)}; name games of this "
            "environment, with the settings that they were played with"
        )
    return Games(observation, action, mask, found.starts, found.ends)


def _masks(found: Episodes, policy: Policy) -> Tree:
    """Return the masks as the policy takes them; in games without masks all actions count as legal."""
    masks, rows = Masks(policy.action_space), found.action_mask
    if rows is None:
        rows = np.ones((len(found.reward), masks.size), np.bool_)
    return masks.tree(rows) if rows.shape[1:] == (masks.size,) else rows  # the spec refuses rows of another size


def _named(leaves: Any, tree: SpaceTree, kind: str) -> Any:
    """Return the leaves as `tree` takes them. Raises ConfigurationError if they have other names."""
    if set(leaves) != set(tree.leaves):
        theirs, ours = (", ".join(map(repr, sorted(names))) for names in (leaves, tree.leaves))
        raise ConfigurationError(f"{kind} has the parts {theirs}, and must have {ours}")
    return leaves[""] if tree.bare else leaves


def _cast(spec: Spec, tree: Tree) -> Tree:
    """Return `tree` in the dtypes of `spec`, except for leaves that would lose more than digits."""

    def one(leaf: ArraySpec, array: np.ndarray) -> np.ndarray:
        return array.astype(leaf.dtype) if np.can_cast(array.dtype, leaf.dtype, "same_kind") else array

    return map_tree(one, spec, tree)
