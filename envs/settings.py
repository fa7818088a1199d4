"""Settings of an environment and of its stepping: the `env` section of a run's settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from envs.rewards import Rewards
from warren.errors import ConfigurationError, unknown_name

VECTORIZATIONS = ("auto", "native", "library", "sync")
TEAM_REWARDS = ("mean", "sum")
# The settings that each name of `preprocessing` stands for; one that is given itself wins. atari: Mnih et al. 2015
# (Nature), as in Stable-Baselines3 and most others, but without the "fire" that begins some games, which an agent can
# learn.
PREPROCESSINGS: dict[str, dict[str, Any]] = {
    "atari": {
        "frame_skip": 4, "noop_start": 30, "episodic_life": True, "grey": True, "resize": 84, "frame_stack": 4,
        "reward_clip": 1.0,
    },
    "none": {},
}  # fmt: skip
PREPROCESSED_SOURCES = {"atari": "atari"}  # prefix of an id -> its default preprocessing
_AT_LEAST = {"workers": 0, "frame_skip": 1, "noop_start": 0, "resize": 1, "frame_stack": 1}


@dataclass(frozen=True)
class EnvSettings:
    """Defaults are those of `env` in workers/config/schema.py, where each setting is explained."""

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    vectorization: str = "auto"
    workers: int = 0
    leave_out: Sequence[str] = ()
    preprocessing: str | None = None
    frame_skip: int | None = None
    noop_start: int | None = None
    episodic_life: bool | None = None
    grey: bool | None = None
    resize: int | None = None
    frame_stack: int | None = None
    reward_channels: Mapping[str, float] = field(default_factory=dict)
    channel_values: bool = False
    reward_scale: float = 1.0
    reward_clip: float | None = None
    info_metrics: Sequence[str] = ()
    action_masks: bool = True
    together: bool = False
    agent_id: bool = False
    state: bool = False
    team_reward: str | None = None

    def problems(self, num_envs: int | None = None) -> Iterator[str]:
        """Yield everything wrong with the settings by themselves, each as "env.NAME: what and the remedy"."""
        if self.vectorization not in VECTORIZATIONS:
            yield f"env.vectorization: {unknown_name('vectorization', self.vectorization, VECTORIZATIONS)}"
        if self.preprocessing is not None and self.preprocessing not in PREPROCESSINGS:
            yield f"env.preprocessing: {unknown_name('preprocessing', self.preprocessing, PREPROCESSINGS)}"
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                yield f"env.{name}: {value} is too small; it must be at least {least}"
        if not 0 < abs(self.reward_scale) < float("inf"):
            yield f"env.reward_scale: {self.reward_scale} is no factor; it must be finite and not 0"
        if self.reward_clip is not None and not self.reward_clip > 0:
            yield f"env.reward_clip: {self.reward_clip} leaves nothing; it must be more than 0, or null"
        if self.reward_channels and (self.resolved().frame_skip or 1) > 1:
            yield "env.frame_skip: adds up rewards of one number; leave it out, or env.reward_channels"
        if self.channel_values and len(self.reward_channels) < 2:
            yield "env.channel_values: it takes several channels; declare them: +env.reward_channels={A: 1, B: 0.5}"
        if len(set(self.info_metrics)) < len(self.info_metrics):
            yield f"env.info_metrics: {list(self.info_metrics)} has a name twice; give each once"
        if self.team_reward is not None and self.team_reward not in TEAM_REWARDS:
            yield f"env.team_reward: {unknown_name('team_reward', self.team_reward, TEAM_REWARDS)}"
        if self.workers > 0:
            yield from self._of_workers(num_envs)

    def _of_workers(self, num_envs: int | None) -> Iterator[str]:
        if num_envs is not None and self.workers > num_envs:
            yield f"env.workers: {self.workers} processes for env.num_envs={num_envs}; at most one a copy"
        if self.id.startswith("__main__:"):
            yield (
                f"env.workers: {self.id!r} is part of the program that runs, which a worker process cannot import; put "
                "it into a file (env.id=path/to/file.py:NAME), or set env.workers=0"
            )
        try:
            json.dumps(dict(self.kwargs))
        except (TypeError, ValueError) as error:
            yield (
                f"env.workers: env.kwargs={dict(self.kwargs)!r} cannot be sent to a process ({error}); give numbers, "
                "text and lists, or set env.workers=0"
            )

    def check(self, num_envs: int | None = None) -> None:
        """Raise ConfigurationError with all problems of the settings, if there are any."""
        if problems := list(self.problems(num_envs)):
            raise ConfigurationError(problems)

    def resolved(self) -> EnvSettings:
        """Return the settings with those of `preprocessing` filled in where none are given."""
        preset = PREPROCESSINGS.get(self._preprocessing, {})
        return replace(self, preprocessing="none", **{k: v for k, v in preset.items() if getattr(self, k) is None})

    @property
    def _preprocessing(self) -> str:
        """The name that is given, else that of the id's source, else "none"."""
        return self.preprocessing or PREPROCESSED_SOURCES.get(self.id.partition(":")[0], "none")

    def rewards(self) -> Rewards:
        """Return the treatment of rewards."""
        return Rewards(self.reward_channels, self.reward_scale, self.resolved().reward_clip)

    @property
    def figures(self) -> list[str]:
        """The metrics of an episode beside its return and length, in the order of their columns in Trajectory.episodes.

        These are each channel's return, and the numbers of the episode's last info.
        """
        channels = [f"return_{name}" for name in self.reward_channels]
        return channels + [f"info_{name}" for name in self.info_metrics]

    @property
    def value_channels(self) -> Mapping[str, float]:
        """Channels that have a value each, by name; empty if the learner sees the reward as one number."""
        return self.reward_channels if self.channel_values else {}

    def unfit_for(self, agents: int) -> Iterator[str]:
        """Yield a sentence for each setting that an environment of `agents` agents does not take."""
        if agents == 1:
            for name in ("together", "agent_id", "state", "team_reward"):
                if getattr(self, name):
                    yield f"env.{name}: {self.id!r} has one agent, for whom it says nothing; leave it out"
            return
        for name in ("frame_skip", "noop_start", "grey", "resize", "episodic_life", "frame_stack"):
            if getattr(self.resolved(), name):
                yield f"env.{name}: {self.id!r} has {agents} agents, and this is for one; leave it out"
        if self.reward_channels:
            yield f"env.reward_channels: agents that learn together have one reward each ({self.id!r}); leave it out"
        if self.info_metrics:
            yield f"env.info_metrics: agents that learn together have an info each ({self.id!r}); leave it out"
        if self.workers:
            yield (
                f"env.workers: games of several agents ({self.id!r}) are stepped by the actor itself; leave it out, "
                "and take more actors"
            )

    @property
    def wraps(self) -> bool:
        """Return True if the settings change the environment's observations or episodes."""
        settings = self.resolved()
        return bool(
            settings.leave_out
            or (settings.frame_skip or 1) > 1
            or settings.noop_start
            or settings.episodic_life
            or settings.grey
            or settings.resize
            or (settings.frame_stack or 1) > 1
        )


def settings_of(env: str | EnvSettings, kwargs: Mapping[str, Any]) -> EnvSettings:
    """Return `env` itself if it is settings; for an id, settings with the constructor's `kwargs` and defaults else."""
    return env if isinstance(env, EnvSettings) else EnvSettings(env, kwargs)
