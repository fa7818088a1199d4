"""A run that clones the player of recorded games: passes over them, checkpoints, a clean stop, games at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from agents import Batch, checkpoints
from league.models.pool import Pool
from warren import progress as shown_progress
from warren.errors import ConfigurationError
from workers.config.imitation import IMITATE
from workers.config.run_names import name_run, run_folder
from workers.config.schema import Config, to_yaml
from workers.config.validation import verify
from workers.imitation import data, evaluation
from workers.imitation.feed import Feed, returns_to_go
from workers.launch.folder import OUTCOME, RunFolder
from workers.launch.kinds.training import resumed
from workers.launch.processes.interrupts import KILLED, Interrupts, raised
from workers.leagues.recipe import LeagueRecipe
from workers.learning.metrics import MetricsLog
from workers.learning.plain import PlainRecipe
from workers.learning.player_state import PlayerState
from workers.runtime.league_paths import league_of
from workers.servers.record import note_start

DONE, STOPPED = "finished", "stopped"


@raised()
def run(config: Config, overrides: Sequence[str]) -> int:
    """Clone to the end; return the exit status: 0 after the last pass, 130 after Ctrl-C. Raises ConfigurationError."""
    if config.resume is not None:
        config = resumed(config, overrides)
    name_run(config)
    config = in_league(config)
    verify(config, IMITATE)
    torch.set_num_threads(config.learner_threads)
    interrupts = Interrupts()
    with RunFolder.take(run_folder(config)) as folder:
        cloning = Imitation(config, folder, print)
        folder.begun = True
        note_start(folder.path)
        if not (folder.path / "config.yaml").exists():
            folder.write("config.yaml", to_yaml(config))
        interrupts.install()
        try:
            return cloning.run(lambda: interrupts.asked)
        finally:
            interrupts.give_back()


def in_league(config: Config) -> Config:
    """Return the settings with the command's algorithm in place of the league's and its players'."""
    if config.league is None:
        return config
    league = {**config.league, "algorithm": dict(config.algorithm)}
    players = {name: {k: v for k, v in one.items() if k != "algorithm"} for name, one in league["players"].items()}
    return replace(config, league=league | {"players": players})


@dataclass
class WithoutServers:
    """The settings of a run that has no servers, and so no pool of models."""

    config: Config
    pool: Pool | None = None


class Imitation:
    """One policy and the games that it imitates; it continues from the newest checkpoint in the run's folder."""

    def __init__(self, config: Config, folder: RunFolder, say: Callable[[str], None]) -> None:
        """Raise ConfigurationError if the games do not fit the environment."""
        self._config, self._folder, self._say = config, folder, say
        here = WithoutServers(config)
        self._league = None if config.league is None else league_of(config)
        recipe = PlainRecipe(config, folder.path) if self._league is None else LeagueRecipe(here, self._league)
        self.state = PlayerState(here, recipe)
        self._take_games()
        total = self._settings.passes * self.learned.steps
        self.state.config = replace(config, total_steps=total, seconds=None)  # schedules take the run's end from it
        self._checkpoint_at = time.monotonic() + config.checkpoint_every

    def _take_games(self) -> None:
        config, state = self._config, self.state
        self._settings = settings = config.imitation
        env = config.env.id if self._league is None else self._league.env
        self._found = found = data.read(settings)
        games = data.fitted(found, state.policy, state.recipe.legal_actions, env)
        order = np.random.default_rng(config.seed).permutation(len(games.ends))
        held = round(settings.held_out * len(order))
        if held == len(order):
            raise ConfigurationError(
                f"imitation.held_out: {settings.held_out:g} of {held} games leaves none to learn from; lower it, or "
                "name more games"
            )
        returns = None
        if not state.policy.channels:
            scaled = config.env.settings().rewards().learned_from(found.reward.astype(np.float64))
            if self._league is not None:
                scaled = found.reward * self._league.reward_scale
            gamma = float(state.recipe.algorithm_settings.get("gamma", 1.0))
            returns = returns_to_go(scaled, games.ends, gamma)
        size = int(state.recipe.algorithm_settings.get("minibatch_size", 256))
        length = config.unroll_length if self._league is None else self._league.unroll_length
        feed = partial(Feed, games, policy=state.policy, size=size, length=length, seed=config.seed)
        self.learned = feed(order[held:], returns=returns)
        self.held_out = feed(order[:held]) if held else None

    def run(self, stopped: Callable[[], bool]) -> int:
        """Learn until the last pass is over or `stopped`; return the exit status."""
        state, found = self.state, self._found
        self._say(
            f"{found.source}: {len(found.ends):,} games, {len(found.reward):,} decisions, mean return "
            f"{found.returns.mean():g}; run folder {self._folder.path}"
        )
        first = state.first_version
        self._metrics = MetricsLog(self._folder.path, last_version=first if first >= 0 else None)
        over = DONE
        try:
            left = self._settings.passes * self.learned.updates - state.progress.updates
            for _ in shown_progress.shown(self._updates(), "updates", left):
                if stopped():
                    over = STOPPED
                    break
                if time.monotonic() >= self._checkpoint_at:
                    self._checkpoint()
            self._checkpoint()
        finally:
            self._metrics.close()
        outcome = {"state": over, "steps": state.progress.steps, "seconds": state.progress.training_seconds}
        outcome |= {"weights": state.digest(), "data_return": float(found.returns.mean())}
        self._folder.write_last(OUTCOME, outcome, self._say)
        if over == STOPPED:
            self._say(f"stopped; go on with: python -m workers.{IMITATE} resume={self._folder.path}")
            return KILLED
        self._folder.write_last(OUTCOME, outcome | self._evaluated(), self._say)
        return 0

    def _updates(self) -> Iterator[None]:
        """Make the updates that are left, one after the other; yield after each."""
        state, feed = self.state, self.learned
        progress = state.progress
        progress.start(time.time())
        for number in range(progress.updates // feed.updates, self._settings.passes):
            metrics: list[dict[str, float]] = []
            for trajectory in feed.of_pass(number, progress.updates % feed.updates):
                state.set_clock()
                metrics.append(state.algorithm.update(Batch([trajectory])).metrics)
                state.averages.add(state.policy)
                progress.add(np.zeros((0, 2)), trajectory.num_steps)
                progress.updates += 1
                progress.version += 1
                if progress.updates % feed.updates:
                    yield
            self._note_pass(number + 1, metrics)
            yield

    def _note_pass(self, number: int, metrics: list[dict[str, float]]) -> None:
        progress = self.state.progress
        means = {name: float(np.mean([one[name] for one in metrics])) for name in metrics[0]}
        of = [f"pass {number} of {self._settings.passes}: loss {means.get('likelihood_loss', np.nan):.3f}"]
        if self.held_out is not None:
            found = evaluation.likelihood(self.state.policy, self.held_out)
            means["held_out_log_probability"] = found.log_probability
            if found.same is not None:
                means["held_out_same"] = found.same
            of.append(f"of the games held out {found}")
        progress.losses = means
        self._metrics.write(progress.figures(), means)
        self._say("; ".join(of))

    def _checkpoint(self) -> None:
        self._checkpoint_at = time.monotonic() + self._config.checkpoint_every
        folder, name = self.state.recipe.folder / "checkpoints", f"{self.state.progress.version:08d}"
        checkpoints.write(folder, name, self.state.moment(), self._config.checkpoints_kept)

    def _evaluated(self) -> dict[str, Any]:
        """Let the clone play; report its mean return, and return the figures for the outcome."""
        count, policy = self._settings.evaluation_games, self.state.policy
        if not count:
            return {}
        if self._league is None:
            env, at_once = self._config.env.settings(), self._config.env.num_envs
            found = evaluation.episode_returns(policy, env, count, at_once, self._config.seed)
            of = f"games, and the games that it imitates have {self._found.returns.mean():g}"
        else:
            found = evaluation.returns_against_chance(policy, self._league, count, self._config.seed)
            of = "games against a player of any legal move"
        error = float(found.std() / len(found) ** 0.5)
        self._say(f"the clone's mean return is {found.mean():g} (standard error {error:.2g}) in {len(found)} {of}")
        return {"mean_return": float(found.mean()), "standard_error": error, "games": len(found)}
