"""A few random steps, or games, before anything starts: faults that an actor would meet later are reported at once.

Code from packages that Warren does not know runs in a separate process (this file as a module): a step that hangs, or
ends its process, must not end the launcher.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import gymnasium
import numpy as np

from envs.checking import faults
from envs.checking.random_actions import RandomActions
from envs.checking.together import TeamActions
from envs.construct import blame
from envs.many_agents.team import Team
from envs.registry import make
from envs.settings import EnvSettings, settings_of
from envs.sources import SOURCES, make_two_player
from warren.errors import ConfigurationError, WarrenError
from warren.separate_process import ask

STEPS = 200  # random steps, at most
SECONDS = 0.5  # s that they take, at most
GAMES = 2  # games played at the same time
WITHIN = 60.0  # s that a separate process may take, imports included


def check(env: str | EnvSettings, kwargs: Mapping[str, Any] | None = None, *, two_player: bool) -> None:
    """Raise ConfigurationError, in one sentence, for an environment that cannot be stepped."""
    settings = settings_of(env, kwargs or {})
    env_id = settings.id
    if _is_known(env_id):
        _check(settings, two_player)
        return
    problems = ask(
        "envs.checking.first_steps",
        [asdict(settings), two_player],
        WITHIN,
        too_long=f"environment {env_id!r}: {STEPS} random steps at most took more than {WITHIN:g} s, the import "
        "included; does a step wait for something?",
        no_answer=f"environment {env_id!r} ended the process that tried it",
    )
    if problems:
        raise ConfigurationError(problems)


def _is_known(env_id: str) -> bool:
    """Return True if the environment's code is gymnasium's own, or of a source of two-player games."""
    source, colon, _ = env_id.partition(":")
    if source in SOURCES:
        return True
    spec = gymnasium.registry.get(env_id) if not colon else None
    return spec is not None and str(spec.entry_point).startswith("gymnasium.")


def _check(settings: EnvSettings, two_player: bool) -> None:
    if two_player:
        _play(settings.id, settings.kwargs)
    else:
        _step(settings)


def _step(settings: EnvSettings) -> None:
    env_id, rewards = settings.id, settings.rewards()
    env = make(settings)
    if isinstance(env, Team):
        _step_team(env)
        return
    try:
        with blame(f"environment {env_id!r}: reset()"):
            begun = env.reset(seed=0)
        faults.require_none(faults.of_call(begun, faults.BEGUN), env_id, "reset()")
        actions = RandomActions(env_id, env.action_space, settings.action_masks)
        actions.follow(begun[1], "reset()")
        faults.require_none(faults.of_observation(env.observation_space, begun[0]), env_id, "reset()")
        env.action_space.seed(0)
        for _ in _budget():
            action = actions.draw()
            doing = f"step(action={action})"
            with blame(f"environment {env_id!r}: {doing}"):
                given = env.step(action)
            faults.require_none(faults.of_call(given, faults.STEPPED), env_id, doing)
            observation, reward, terminated, truncated, info = given
            faults.require_none(faults.of_observation(env.observation_space, observation), env_id, doing)
            faults.require_none(faults.of_reward(rewards, reward), env_id, doing)
            faults.require_none(faults.of_ends(terminated, truncated), env_id, doing)
            if terminated or truncated:
                doing = "reset()"
                with blame(f"environment {env_id!r}: reset()"):
                    begun = env.reset()
                faults.require_none(faults.of_call(begun, faults.BEGUN), env_id, "reset()")
                info = begun[1]
            actions.follow(info, doing)
    finally:
        env.close()


def _step_team(team: Team) -> None:
    actions = TeamActions(team)
    try:
        with blame(f"environment {team.name!r}: reset()"):
            actions.begin(0)
        for _ in _budget():
            actions.step()
    finally:
        team.close()


def _play(env_id: str, kwargs: Mapping[str, Any]) -> None:
    games = make_two_player(env_id, GAMES, 0, **kwargs)
    generator = np.random.default_rng(0)
    shape, num_actions = games.single_observation_space.shape or (), int(games.single_action_space.n)
    try:
        doing = "reset()"
        with blame(f"environment {env_id!r}: {doing}"):
            turn = games.reset()
        for _ in _budget():
            faults.require_none(faults.of_turn(turn, GAMES, shape, num_actions, games.players), env_id, doing)
            action = (generator.random(turn.action_mask.shape) * turn.action_mask).argmax(axis=1)
            doing = f"step(action={action.tolist()})"
            with blame(f"environment {env_id!r}: {doing}"):
                turn = games.step(action)
        faults.require_none(faults.of_turn(turn, GAMES, shape, num_actions, games.players), env_id, doing)
    finally:
        games.close()


def _budget() -> Iterator[int]:
    until = time.monotonic() + SECONDS
    for step in range(STEPS):
        yield step
        if time.monotonic() > until:
            return


def main() -> None:
    """Run the process of `check`: read the question from standard input, write the problems to standard output."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # user code's prints must not get into the answer
    given, two_player = json.loads(sys.stdin.read())
    settings = EnvSettings(**given)
    problems: list[str] = []
    try:
        _check(settings, two_player)
    except ConfigurationError as error:
        problems = error.problems
    except WarrenError as error:
        problems = [f"environment {settings.id!r}: {error}"]
    with answer:
        json.dump(problems, answer)
    os._exit(0)  # without waiting for threads that the environment has started


if __name__ == "__main__":
    main()
