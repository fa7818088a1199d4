"""What an environment is and how it is stepped: the `env` section of a run's settings, as this package takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from warren.errors import ConfigurationError, unknown_name

VECTORIZATIONS = ("auto", "library", "sync")


@dataclass(frozen=True)
class EnvSettings:
    """Defaults are those of `env` in workers/config/schema.py, where each setting is explained."""

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    vectorization: str = "auto"

    def problems(self) -> Iterator[str]:
        """Everything wrong with the settings by themselves, each "name: what and the remedy"."""
        if self.vectorization not in VECTORIZATIONS:
            yield f"vectorization: {unknown_name('vectorization', self.vectorization, VECTORIZATIONS)}"

    def check(self) -> None:
        """Raises ConfigurationError with all problems of the settings, if there are any."""
        if problems := [f"env.{problem}" for problem in self.problems()]:
            raise ConfigurationError(problems)


def settings_of(env: str | EnvSettings, kwargs: Mapping[str, Any]) -> EnvSettings:
    """`env` itself; of an id, the settings that make it with the constructor's `kwargs` and all else as it is."""
    return env if isinstance(env, EnvSettings) else EnvSettings(env, kwargs)
