"""A scenario: a Compose project, and steps in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from project import Project

Step = Callable[[Project], str]  # returns a short summary of what it saw
ENDLESS = "env.goal=null total_steps=1000000000 checkpoint_every=5"


@dataclass(frozen=True)
class Scenario:
    """Steps that share a project: (name, minutes at most, function) each."""

    name: str
    variables: dict[str, str] = field(default_factory=dict)
    steps: list[tuple[str, float, Step]] = field(default_factory=list)

    def step(self, name: str, minutes: float) -> Callable[[Step], Step]:
        """Add the function to the steps."""

        def add(function: Step) -> Step:
            self.steps.append((name, minutes, function))
            return function

        return add
