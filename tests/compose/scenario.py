"""A scenario: a project of Compose, and steps in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from project import Project

Step = Callable[[Project], str]  # it returns what was seen, in a few words
ENDLESS = "env.goal=null total_steps=1000000000 checkpoint_every=5"


@dataclass(frozen=True)
class Scenario:
    """Steps that share a project; each has so many minutes at most."""

    name: str
    variables: dict[str, str] = field(default_factory=dict)
    steps: list[tuple[str, float, Step]] = field(default_factory=list)

    def step(self, name: str, minutes: float) -> Callable[[Step], Step]:
        """Add the function to the steps."""

        def add(function: Step) -> Step:
            self.steps.append((name, minutes, function))
            return function

        return add
