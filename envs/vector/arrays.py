"""Settings that do not work with a vector in arrays, in C or by the library."""

from __future__ import annotations

from collections.abc import Collection

from envs.settings import EnvSettings


def name_of(settings: EnvSettings) -> str:
    """Return gymnasium's id of an environment."""
    return settings.id.removeprefix("gymnasium:")


def objection(settings: EnvSettings, options: Collection[str | None]) -> str | None:
    """Return why a vector in arrays, which takes these `options` of env.kwargs, does not fit; None if it fits."""
    if settings.wraps:
        return f"that of {settings.id!r} takes no settings of its observations and episodes"
    if settings.reward_channels:
        return f"that of {settings.id!r} has one reward"
    if settings.info_metrics:
        return f"that of {settings.id!r} gives no infos"
    if other := set(settings.kwargs) - {*options}:
        return f"that of {settings.id!r} does not take env.kwargs {', '.join(sorted(other))}"
    limit = settings.kwargs.get("max_episode_steps")
    if limit is not None and limit < 1:
        return f"that of {settings.id!r} takes no max_episode_steps={limit}"
    return None
