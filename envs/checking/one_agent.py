"""A few thousand random steps of one agent's environment, checked for everything that would disturb a run."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envs.checking import faults, repeatable
from envs.checking.budget import budget, watch
from envs.checking.held import check_copies, check_growth, memory
from envs.checking.random_actions import RandomActions, of_vector
from envs.checking.report import Report
from envs.construct import blame
from envs.registry import as_arrays, make, make_vector, own_vector
from envs.settings import EnvSettings
from warren.trees import leaves

SECONDS = 60.0  # s of the long walk
SHORT = 500  # steps of a play that is compared with another, at most
SHORT_SECONDS = 5.0
COPIES = 8  # copies stepped at once
VECTOR_SECONDS = 2.0


def check(report: Report, settings: EnvSettings, steps: int) -> None:
    """Fill `report` with the findings of `steps` random steps of the environment."""
    watch()
    with report.checking("made"):
        started = time.perf_counter()
        env = make(settings)
        report.ok("made", f"in {time.perf_counter() - started:.2g} s")
        _spaces(report, env)
        try:
            with report.checking("steps"):
                _Walk(report, settings, env).take(steps)
        finally:
            env.close()
    if report.problems:
        return  # later checks would meet the same fault
    with report.checking("seeds"):
        repeatable.check(report, lambda: _Recorded(settings))
    with report.checking("leaks"):
        check_copies(report, lambda: _use(settings))
    with report.checking(f"{COPIES} copies"):
        _vector(report, settings)


def _spaces(report: Report, env: gymnasium.Env) -> None:
    taken = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    for name, space in (("observations", env.observation_space), ("actions", env.action_space)):
        for path, leaf in _parts(space):
            what = f"{name}{'.' if path else ''}{path}"
            if not isinstance(leaf, taken):
                report.problem("spaces", f"{what} are {leaf}, which no network takes; use Box, Discrete, Dict")
            elif name == "actions" and isinstance(leaf, spaces.Box):
                if leaf.dtype.kind != "f":
                    report.problem("spaces", f"{what} are {leaf}; make whole numbers MultiDiscrete")
                elif not leaf.is_bounded():
                    report.note("spaces", f"{what} are {leaf}, without bounds; a policy begins near 0")
    report.ok("spaces", f"observations {_short(env.observation_space)}; actions {_short(env.action_space)}")


def _parts(space: gymnasium.Space[Any], path: str = "") -> Iterator[tuple[str, gymnasium.Space[Any]]]:
    """Yield (path, leaf) of each space that is not a Dict or Tuple."""
    inside = space.spaces if isinstance(space, spaces.Dict | spaces.Tuple) else None
    if inside is None:
        yield path, space
        return
    for name, part in inside.items() if isinstance(inside, dict) else enumerate(inside):
        yield from _parts(part, f"{path}.{name}" if path else str(name))


def _short(space: gymnasium.Space[Any]) -> str:
    """Return a text of a space, for a Box without its arrays of bounds."""
    if isinstance(space, spaces.Box):
        return f"{space.dtype} {list(space.shape)}, from {space.low.min():g} to {space.high.max():g}"
    return str(space)


def milliseconds(seconds: float) -> str:
    """Return a time with three digits, or with all digits before the point: "8.41 ms", "1,320 ms"."""
    number = 1e3 * seconds
    return f"{number:,.0f} ms" if number >= 999.5 else f"{number:.3g} ms"


class _Walk:
    """One environment, played at random for long, with every step's results checked."""

    def __init__(self, report: Report, settings: EnvSettings, env: gymnasium.Env) -> None:
        self.report, self.settings, self.env = report, settings, env
        self.rewards = settings.rewards()
        self.actions = RandomActions(settings.id, env.action_space, settings.action_masks)
        self.legal: np.ndarray | None = None  # choices that were legal at any time; None without masks
        self.counts: list[int] = []  # numbers of legal choices, by step
        self.lengths: list[int] = []
        self.terminated = self.truncated = 0
        self.least, self.most = np.inf, -np.inf
        self.noted: set[str] = set()
        self.measured: list[int] = []
        self.reset_seconds: list[float] = []

    def take(self, steps: int) -> None:
        env, env_id = self.env, self.settings.id
        env.action_space.seed(0)
        self._reset(0)
        quarter, taken, length, slowest, stepping = max(steps // 4, 1), 0, 0, 0.0, 0.0
        for step in budget(steps, SECONDS):
            action = self.actions.draw()
            before = time.perf_counter()
            with blame(f"environment {env_id!r}: step(action={action})"):
                given = env.step(action)
            took = time.perf_counter() - before
            faults.require_none(faults.of_call(given, faults.STEPPED), env_id, f"step(action={action})")
            observation, reward, terminated, truncated, info = given
            stepping, slowest, taken, length = stepping + took, max(slowest, took), taken + 1, length + 1
            self._look(observation, f"step(action={action})")
            faults.require_none(faults.of_ends(terminated, truncated), env_id, f"step(action={action})")
            if not (terminated or truncated):
                self._legal(info, f"step(action={action})")
            self._reward(reward, action)
            self._ends(terminated, truncated)
            if terminated or truncated:
                self.lengths.append(length)
                self.terminated += bool(terminated)
                self.truncated += bool(truncated) and not terminated
                length = 0
                self._reset(None)
            if step % quarter == quarter - 1:
                self.measured.append(memory())
        self._say(steps, taken)
        if len(self.measured) >= 4:
            check_growth(self.report, self.measured[:4], taken)
        self.report.ok(
            "speed",
            f"{taken / stepping:,.0f} steps/s of one copy; the slowest step took {milliseconds(slowest)}, a "
            f"reset {milliseconds(float(np.mean(self.reset_seconds)))} on average",
        )

    def _reset(self, seed: int | None) -> None:
        before = time.perf_counter()
        with blame(f"environment {self.settings.id!r}: reset()"):
            begun = self.env.reset(seed=seed)
        self.reset_seconds.append(time.perf_counter() - before)
        faults.require_none(faults.of_call(begun, faults.BEGUN), self.settings.id, "reset()")
        observation, info = begun
        self._look(observation, "reset()")
        self._legal(info, "reset()")

    def _legal(self, info: Any, doing: str) -> None:
        self.actions.follow(info, doing)
        if (row := self.actions.row) is not None:
            self.legal = row if self.legal is None else self.legal | row
            self.counts.append(int(row.sum()))

    def _look(self, observation: Any, doing: str) -> None:
        space = self.env.observation_space
        faults.require_none(faults.of_observation(space, observation), self.settings.id, doing)
        if not isinstance(space, spaces.Box):
            return
        array = np.asarray(observation)
        if array.dtype != space.dtype:
            lost = space.dtype.kind in "iub" and array.dtype.kind == "f" and bool((array != np.rint(array)).any())
            text = f"{doing} gave {array.dtype}, the space says {space.dtype}: "
            if lost:
                self._once(text + "what stands behind the point is lost", "dtypes", problem=True)
            else:
                self._once(text + "it is converted at each step")
        if not (np.all(array >= space.low) and np.all(array <= space.high)):
            where = np.argwhere((array < space.low) | (array > space.high))[0]
            at = tuple(int(i) for i in where)
            value = array[at] if at else array[()]
            low, high = space.low[at] if at else space.low[()], space.high[at] if at else space.high[()]
            text = f"{doing} gave {value} at {list(at)}, the space is from {low} to {high}"
            wraps = space.dtype.kind in "iu" and not (np.iinfo(space.dtype).min <= value <= np.iinfo(space.dtype).max)
            self._once(text, "bounds", problem=bool(wraps))

    def _reward(self, reward: Any, action: Any) -> None:
        faults.require_none(faults.of_reward(self.rewards, reward), self.settings.id, f"step(action={action})")
        number = self.rewards.total(np.asarray([self.rewards.read(reward)]))[0] if self.rewards.channels else reward
        self.least, self.most = min(self.least, float(number)), max(self.most, float(number))

    def _ends(self, terminated: Any, truncated: Any) -> None:
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(value, bool | np.bool_):
                self._once(f"step() gave {name}={value!r}; it should be True or False", "ends")

    def _once(self, text: str, check: str = "dtypes", *, problem: bool = False) -> None:
        if check not in self.noted:
            self.noted.add(check)
            (self.report.problem if problem else self.report.note)(check, text)

    def _say(self, steps: int, taken: int) -> None:
        cut = "" if taken == steps else f" (of {steps:,}: {SECONDS:g} s were over)"
        if not self.lengths:
            self.report.note(
                "steps",
                f"{taken:,} random steps{cut}, and no episode ended: returns are shown where one ends; is there a time "
                "limit?",
            )
        else:
            self.report.ok(
                "steps",
                f"{taken:,} random steps{cut}; episodes: {len(self.lengths)} of {min(self.lengths)} to "
                f"{max(self.lengths)} steps, {self.terminated} ended by the game (terminated), {self.truncated} cut "
                "off (truncated)",
            )
        if self.legal is not None:
            least, most, never = min(self.counts), max(self.counts), np.flatnonzero(~self.legal)
            self.report.ok("masks", f"{least} to {most} of {len(self.legal)} choices legal a step")
            if len(never):
                self.report.note("masks", f"{len(never)} choices were never legal: {faults.few(never)}")
        if self.least == self.most == 0:
            self.report.note("rewards", "all 0: random play meets none, which is hard to learn from")
        else:
            self.report.ok("rewards", f"from {self.least:g} to {self.most:g}")


class _Recorded(repeatable.Play):
    """An environment whose steps are compared with those of another."""

    def __init__(self, settings: EnvSettings) -> None:
        self.settings, self.env = settings, make(settings)
        self.space = deepcopy(self.env.action_space)  # a class's attribute is shared by all copies
        self.actions = RandomActions(settings.id, self.space, settings.action_masks)

    def reset(self, seed: int) -> bytes:
        self.space.seed(7)
        return self._reset(seed)

    def _reset(self, seed: int | None) -> bytes:
        observation, info = self.env.reset(seed=seed)
        self.actions.follow(info, "reset()")
        return _digest(observation)

    def step(self) -> bytes:
        observation, *rest, info = self.env.step(self.actions.draw())
        seen = _digest((observation, *rest))
        if rest[1] or rest[2]:
            return seen + self._reset(None)
        self.actions.follow(info, "step()")
        return seen

    def close(self) -> None:
        self.env.close()


def _digest(tree: Any) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for _, leaf in leaves(tree):
        found.update(np.asarray(leaf).tobytes())
    return found.digest()


def _use(settings: EnvSettings) -> None:
    play = _Recorded(settings)
    try:
        play.reset(0)
        for _ in budget(10, SHORT_SECONDS):
            play.step()
    finally:
        play.close()


def _vector(report: Report, settings: EnvSettings) -> None:
    vector = make_vector(settings, COPIES, 0)
    vector.merges_infos = False  # as in a run: infos of different forms cannot be merged
    how = "in worker processes" if settings.workers else "one after another"
    if not settings.workers and as_arrays(settings) is not None:
        how = "as arrays"
    elif own_vector(settings) is not None:
        how = "as the vector that it is"
    try:
        vector.action_space.seed(0)
        with blame(f"{COPIES} copies of environment {settings.id!r}: reset()"):
            _, info = vector.reset()
        steps, started = 0, time.perf_counter()
        for _ in budget(5000, VECTOR_SECONDS):
            with blame(f"{COPIES} copies of environment {settings.id!r}: step()"):
                *_, info = vector.step(of_vector(vector, info))
            steps += COPIES
        report.ok(f"{COPIES} copies", f"{steps / (time.perf_counter() - started):,.0f} steps/s, {how}")
    finally:
        vector.close()
