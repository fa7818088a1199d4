"""A trained policy, loaded from its run folder to act with; no server or role has to run.

    trained = load("runs/cartpole/20260101-120000-ab12")      # the newest checkpoint
    env = trained.make()
    observation, _ = env.reset()
    action = trained.act(observation)

Of a league: `load("runs/kuhn/TRIAL", "main")`, any player that learned or was frozen ("main@1200").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space, iterate

import envs
from agents import build_policy, checkpoints
from agents.networks import Memory
from agents.policies import Policy
from envs.many_agents.team import Team
from envs.masks import KEY, Masks
from envs.vector.base import stacked
from league.matchmaking.view import ModelRef
from league.models.saved_files import frozen_models, model_bytes
from warren.errors import CheckpointError, ConfigurationError, UnknownName
from warren.trees import map_tree
from workers.config.run_names import BEST
from workers.config.schema import Config, from_yaml
from workers.runtime.league_paths import saved_settings
from workers.runtime.league_policies import LeaguePolicies
from workers.servers import record

MAIN = "main"  # the player of a run without a league, and the first of most leagues


@dataclass
class Trained:
    """A policy as it was saved, with the environment that it was trained on. `source`: the file."""

    policy: Policy
    env_id: str
    env_kwargs: dict[str, Any]
    two_player: bool
    source: Path
    memory: Memory | None = None  # of a policy that has one, after the last `act`
    settings: envs.EnvSettings | None = None  # settings of an environment for one agent
    version: int = -1  # version of the weights
    seen_in: tuple[Path, ...] = ()  # folders where learners of its game record what they saw, its own first

    def make(self, **kwargs: Any) -> gymnasium.Env:
        """Make the environment that the policy was trained on.

        `kwargs`, such as render_mode="human", go to its constructor.
        """
        settings = self.settings or envs.EnvSettings(self.env_id, self.env_kwargs)
        whole_games = replace(settings.resolved(), episodic_life=False, kwargs={**self.env_kwargs, **kwargs})
        return envs.make(whole_games)

    def games(self, num_envs: int = 1, seed: int = 0) -> envs.TwoPlayerVectorEnv:
        """Make games of the two-player game that the policy was trained on."""
        return envs.make_two_player(self.env_id, num_envs, seed, **self.env_kwargs)

    def act(self, observation: Any, action_mask: Any = None, *, greedy: bool = True) -> Any:
        """Return the action for one observation (without a leading dimension), as the environment takes it.

        A policy with a memory remembers its last calls: call `begin` where an episode begins. `action_mask`: the legal
        actions, bool [A], or in the form that the environment gives them. `greedy`: return the likeliest action; else
        draw it as in training. Games of hidden information need drawn actions: a player that never bluffs is found out.
        """
        masks = None if action_mask is None else Masks(self.policy.action_space)
        mask = None if masks is None else masks.tree(masks.row(action_mask)[None])
        one = map_tree(lambda leaf: np.asarray(leaf)[None], observation)
        mode = "greedy" if greedy else "sample"
        action, self.memory = self.policy.act(one, self.memory, mode, mask)
        return map_tree(lambda leaf: leaf[0], self.policy.env_action(action))

    def act_together(
        self, team: Team, observations: Sequence[Any], info: Mapping[str, Any], *, greedy: bool = True
    ) -> Any:
        """Return an action for each agent of `team`, given its reset or step; memories go on as in `act`."""
        together = stacked(team.observation_space, observations)
        mask = team.masks.tree(info[KEY]) if team.masks is not None and team.masked else None
        mode = "greedy" if greedy else "sample"
        action, self.memory = self.policy.act(together, self.memory, mode, mask)
        actions = self.policy.env_action(action)
        return list(iterate(batch_space(team.action_space, len(team.agents)), actions))

    def legal(self, info: Mapping[str, Any]) -> Any:
        """Return the mask of legal actions in an environment's `info`; None if it has none, or masks are not wanted."""
        return None if self.settings is not None and not self.settings.action_masks else info.get(KEY)

    def begin(self) -> None:
        """Begin an episode: the policy forgets earlier calls."""
        self.memory = None


def load(folder: str | Path, player: str = MAIN, version: int | None = None, *, best: bool = False) -> Trained:
    """Load the newest checkpoint of a run folder, or of the newest run in a folder of runs.

    `player`: of a league's run, the player to load, or the name of a frozen model. `version`: load the checkpoint of
    this version of the weights instead. `best`: load that of the best evaluation, from a run that kept it
    (evaluation.keep_best).

    Raises ConfigurationError when there is no run folder, UnknownName for a player that is not in it, CheckpointError
    for a checkpoint that is damaged or missing.
    """
    folder = run_in(Path(folder))
    config = from_yaml(folder / "config.yaml")
    if best:
        _refuse_best(folder, config, version)
    if config.league is not None:
        return _of_league(folder, config, player, version)
    if player != MAIN:
        raise ConfigurationError(
            f"player {player!r}: {folder} is of no league, and has one policy; leave out the player"
        )
    settings = config.env.settings()
    policy = build_policy(config.network, *envs.spaces(settings), config.seed, settings.value_channels)
    source, checkpoint = _read(folder / (BEST if best else "checkpoints"), version)
    checkpoints.load_weights(policy, checkpoint.policy, str(source))
    kwargs, number = dict(config.env.kwargs), version_of(source)
    return Trained(policy, config.env.id, kwargs, False, source, settings=settings, version=number, seen_in=(folder,))


def _refuse_best(folder: Path, config: Config, version: int | None) -> None:
    """Raise ConfigurationError if a run has no best checkpoint, or a version is asked for as well."""
    if config.league is not None:
        raise ConfigurationError(f"{folder} is a league's, which keeps no best checkpoint; name a player or a model")
    if version is not None:
        raise ConfigurationError(f"version {version} and the best one are both asked for; leave one of them out")
    if not (folder / BEST).is_dir():
        raise ConfigurationError(
            f"{folder} holds no folder {BEST}; a run keeps its best weights with evaluation.every=STEPS "
            "evaluation.keep_best=true"
        )


def run_in(folder: Path) -> Path:
    """Return `folder`, if it is a run folder, or the newest run in it: the one that was started last.

    Runs lie in it (runs/cartpole) or one level lower (runs). A run that failed before it saved anything is taken only
    if there is no other. Raises ConfigurationError if there is none.
    """
    if not (folder / "config.yaml").is_file():
        found = {file.parent for level in ("*", "*/*") for file in folder.glob(f"{level}/config.yaml")}
        runs = [run for run in found if run.parent not in found]  # a tracker's folder within a run's is not a run
        folder = max(runs, key=lambda run: (_began(run), run.name), default=folder)
    if not (folder / "config.yaml").is_file():
        raise ConfigurationError(
            f"{folder} is not a run folder (it has no config.yaml); name one, as in runs/cartpole/TRIAL"
        )
    return folder


def _began(run: Path) -> float:
    """Return the time at which a run was started, in s since 1970; 0 for one that failed before it saved anything.

    If no launcher wrote the time, as for roles that were started one by one, that of its newest checkpoint counts.
    """
    held = [checkpoints.latest(folder) for folder in (run / "checkpoints", *run.glob("players/*/checkpoints"))]
    saved = max((checkpoints.saved_at(path) or 0 for path in held if path is not None), default=0) / 1e9
    started = record.started_at(run)
    if started is None or (not saved and (run / "outcome.json").is_file()):
        return saved
    return started


def _of_league(folder: Path, config: Config, player: str, version: int | None) -> Trained:
    league = saved_settings(folder, config)
    policies = LeaguePolicies(league)
    frozen = frozen_models(folder / "league")
    learning = {path.parent.name: path for path in folder.glob("players/*/checkpoints")}
    if player in learning:
        source, checkpoint = _read(learning[player], version)
        number = version_of(source)
        policy = policies.loaded(player, checkpoint.policy, checkpoint.meta, str(source))
    elif player in frozen:
        model = ModelRef.parse(player)
        data, source = model_bytes(folder / "league", model)
        number, policy = model.version, policies.frozen(model, data, str(source))
    else:
        where = f"in {folder}; learning there: {', '.join(sorted(learning))}"
        raise UnknownName("player", player, [*learning, *frozen], where)
    own = folder / "players" / player.partition("@")[0]
    seen_in = (own, *sorted(path.parent for path in learning.values() if path.parent != own))
    return Trained(policy, league.env, dict(league.env_kwargs), True, source, version=number, seen_in=seen_in)


def _read(folder: Path, version: int | None) -> tuple[Path, checkpoints.Checkpoint]:
    """Read the newest checkpoint in `folder`, or that of `version`. Raises CheckpointError."""
    try:
        source = _checkpoint(folder, version)
        return source, checkpoints.load(source)
    except CheckpointError:
        if version is not None:
            raise
    source = _checkpoint(folder, version)  # its run, if it keeps only the newest one, may just have replaced it
    return source, checkpoints.load(source)


def _checkpoint(folder: Path, version: int | None) -> Path:
    """Return the newest checkpoint in `folder`, or that of `version`. Raises CheckpointError if there is none."""
    found = checkpoints.latest(folder) if version is None else folder / f"{version:08d}{checkpoints.SUFFIX}"
    if found is None:
        raise CheckpointError(f"{folder} holds no checkpoint yet; a run writes one when it stops, and every 30 s")
    if not found.is_file():
        known = ", ".join(str(number) for number in versions(folder)) or "none"
        raise CheckpointError(f"{folder} holds no checkpoint of version {version}; it holds {known}")
    return found


def versions(folder: Path) -> list[int]:
    """Return the weight versions whose checkpoints are in a folder, the oldest first."""
    return sorted(version_of(path) for path in numbered(folder))


def numbered(folder: Path) -> list[Path]:
    """Return the files of a folder whose names are those of checkpoints, damaged or not."""
    return [path for path in folder.glob(f"*{checkpoints.SUFFIX}") if path.stem.isdigit()]


def version_of(checkpoint: Path) -> int:
    """Return the weight version in the name of a checkpoint's file."""
    return int(checkpoint.stem)
