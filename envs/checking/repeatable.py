"""Check that a seed decides everything: the same play again, beside other copies, and after other episodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from envs.checking.budget import budget
from envs.checking.report import Report

STEPS = 500  # steps that are compared, at most
SECONDS = 5.0  # s that a play may take


class Play(ABC):
    """One copy of an environment, played with actions that follow from its reset alone."""

    @abstractmethod
    def reset(self, seed: int) -> bytes:
        """Return a digest of a first observation."""

    @abstractmethod
    def step(self) -> bytes:
        """Return digests of a step's results, and of the next episode's beginning if one ended."""

    @abstractmethod
    def close(self) -> None:
        """Close the copy."""


def check(report: Report, make: Callable[[], Play]) -> None:
    """Play the same seed anew, beside another copy, and in a copy that has played before; then play another seed."""
    first = make()
    try:
        plain = _play(first, 0)
        steps = len(plain)
        again = _alone(make, 0, steps)
        if problem := _differs(plain, again):
            report.problem("seeds", f"the same seed and actions give something else {problem}; {_CHANCE}")
            return
        if problem := _differs(plain, _beside(make, 0, steps)):
            report.problem(
                "seeds",
                f"a copy plays otherwise {problem} when another copy plays in the same process: they share something "
                "(np.random, random, a class's attribute); give each copy its own",
            )
            return
        if problem := _differs(plain, _play(first, 0, steps)):
            report.problem(
                "seeds",
                f"reset(seed=...) of a copy that has played gives something else {problem} than of a new one; "
                "something is left of the episodes before",
            )
            return
    finally:
        first.close()
    if _differs(plain, _alone(make, 1, steps)):
        report.ok("seeds", f"the same seed plays the same over {steps - 1} steps, another seed something else")
    else:
        report.note(
            "seeds",
            f"two seeds play the same over {steps - 1} steps: it draws nothing at random, or ignores reset(seed=...)",
        )


_CHANCE = "its chance must follow from reset(seed=...): self.np_random after super().reset(seed=seed)"


def _play(play: Play, seed: int, steps: int | None = None) -> list[bytes]:
    found = [play.reset(seed)]
    within = budget(STEPS, SECONDS) if steps is None else range(steps - 1)
    found.extend(play.step() for _ in within)
    return found


def _alone(make: Callable[[], Play], seed: int, steps: int) -> list[bytes]:
    play = make()
    try:
        return _play(play, seed, steps)
    finally:
        play.close()


def _beside(make: Callable[[], Play], seed: int, steps: int) -> list[bytes]:
    play, other = make(), make()
    try:
        found = [play.reset(seed)]
        other.reset(seed + 12345)
        for _ in range(steps - 1):
            other.step()
            found.append(play.step())
        return found
    finally:
        play.close()
        other.close()


def _differs(one: list[bytes], other: list[bytes]) -> str:
    """Return in words where the two plays begin to differ; "" if they do not."""
    for step, (this, that) in enumerate(zip(one, other, strict=True)):
        if this != that:
            return "at the reset" if step == 0 else f"at step {step}"
    return ""
