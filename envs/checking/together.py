"""A few thousand random steps of agents that learn together, checked for everything that would disturb a run."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np

from envs.checking import faults, repeatable
from envs.checking.budget import budget, watch
from envs.checking.held import check_copies, check_growth, memory
from envs.checking.report import Report
from envs.construct import blame
from envs.many_agents.team import Team
from envs.masks import KEY, WrongMask
from envs.registry import make
from envs.settings import EnvSettings
from envs.vector.base import WrongResult
from warren.errors import ConfigurationError
from warren.trees import leaves

SECONDS = 60.0  # s of the long walk


class TeamActions:
    """Plays one game after another of `team` by random legal actions, and checks all its results.

    `lengths` and `returns` (the mean over the agents) are of the games that ended.
    """

    def __init__(self, team: Team, seed: int = 0) -> None:
        self.team = team
        team.action_space.seed(seed)
        self.lengths: list[int] = []
        self.returns: list[float] = []
        self.decisions = self.places = 0
        self._length, self._return = 0, 0.0
        self._info: dict[str, Any] = {}

    def begin(self, seed: int | None = None) -> list[Any]:
        """Begin a game; return what the agents see. Raises ConfigurationError for a fault."""
        try:
            observations, self._info = self.team.reset(seed=seed)
        except (WrongMask, WrongResult) as wrong:
            raise ConfigurationError(f"environment {self.team.name!r}: reset() {wrong}") from None
        self._look(observations, "reset()")
        self._length, self._return = 0, 0.0
        return observations

    def step(self) -> tuple[Any, ...]:
        """Make one step, and begin the next game if one ended; return the step's results. Raises ConfigurationError."""
        team, env_id = self.team, self.team.name
        space, masks, rows = team.action_space, team.masks, self._info.get(KEY)
        if rows is None or masks is None:
            actions = [space.sample() for _ in team.agents]
        else:
            actions = [masks.draw(space, row) for row in rows]
        self.decisions, self.places = self.decisions + int(team.valid.sum()), self.places + len(team.agents)
        doing = f"step({dict(zip(team.agents, actions, strict=True))})"
        try:
            with blame(f"environment {env_id!r}: {doing}"):
                observations, reward, terminated, truncated, self._info = team.step(actions)
        except ConfigurationError as error:
            if isinstance(error.__cause__, WrongMask | WrongResult):
                raise ConfigurationError(f"environment {env_id!r}: {doing} {error.__cause__}") from None
            raise
        self._look(observations, doing)
        if not np.isfinite(reward).all():
            raise ConfigurationError(
                f"environment {env_id!r}: {doing} gave the rewards {reward.tolist()}; they must be finite"
            )
        self._length, self._return = self._length + 1, self._return + float(reward.mean())
        given: tuple[Any, ...] = (observations, reward, terminated, truncated)
        if team.over:
            self.lengths.append(self._length)
            self.returns.append(self._return)
            with blame(f"environment {env_id!r}: reset()"):
                given = (*given, self.begin())
        return given

    def _look(self, observations: list[Any], doing: str) -> None:
        for i, agent in enumerate(self.team.agents):
            if self.team.valid[i]:
                found = faults.of_observation(self.team.observation_space, observations[i])
                faults.require_none(found, self.team.name, f"{doing} of agent {agent!r}")


def check(report: Report, settings: EnvSettings, steps: int) -> None:
    """Fill `report` with the findings of `steps` random steps of the game."""
    watch()
    with report.checking("made"):
        started = time.perf_counter()
        team = _made(settings)
        report.ok("made", f"in {time.perf_counter() - started:.2g} s")
        report.ok("agents", f"{len(team.agents)} that learn by one policy: {', '.join(team.agents)}")
        report.ok("spaces", f"observations {team.observation_space}; actions {team.action_space}")
        try:
            with report.checking("steps"):
                _walk(report, team, steps)
        finally:
            team.close()
    if report.problems:
        return
    with report.checking("seeds"):
        repeatable.check(report, lambda: _Recorded(settings))
    with report.checking("leaks"):
        check_copies(report, lambda: _use(settings))


def _made(settings: EnvSettings) -> Team:
    team = make(settings)
    assert isinstance(team, Team)
    return team


def _walk(report: Report, team: Team, steps: int) -> None:
    actions = TeamActions(team)
    with blame(f"environment {team.name!r}: reset()"):
        actions.begin(0)
    quarter, taken, started = max(steps // 4, 1), 0, time.perf_counter()
    measured: list[int] = []
    for step in budget(steps, SECONDS):
        actions.step()
        taken += 1
        if step % quarter == quarter - 1:
            measured.append(memory())
    seconds, lengths, returns = time.perf_counter() - started, actions.lengths, actions.returns
    if not lengths:
        report.note("steps", f"{taken:,} random steps, and no game ended: returns are shown where one ends")
    else:
        report.ok("steps", f"{taken:,} random steps; games: {len(lengths)} of {min(lengths)} to {max(lengths)} steps")
        report.ok("returns", f"the mean of the agents' from {min(returns):g} to {max(returns):g}")
    if actions.decisions < actions.places:
        report.ok("presence", f"agents are there at {actions.decisions / actions.places:.0%} of the steps")
    if team.masked:
        report.ok("masks", "actions are drawn by masks of the legal ones")
    if len(measured) >= 4:
        check_growth(report, measured[:4], taken)
    report.ok("speed", f"{taken / seconds:,.0f} steps/s of one game")


class _Recorded(repeatable.Play):
    """A game whose steps are compared with those of another."""

    def __init__(self, settings: EnvSettings) -> None:
        self.actions = TeamActions(_made(settings), 7)

    def reset(self, seed: int) -> bytes:
        self.actions.team.action_space.seed(7)
        return _digest(self.actions.begin(seed))

    def step(self) -> bytes:
        return _digest(list(self.actions.step()))

    def close(self) -> None:
        self.actions.team.close()


def _digest(parts: list[Any]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        for _, leaf in leaves(tuple(part) if isinstance(part, list) else part):
            found.update(np.asarray(leaf).tobytes())
    return found.digest()


def _use(settings: EnvSettings) -> None:
    play = _Recorded(settings)
    play.reset(0)
    for _ in budget(10, repeatable.SECONDS):
        play.step()
    play.close()
