"""The release that wrote a configuration, and the formats of its run: a table `written_by` beside the settings."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from warren import __version__, formats
from warren.errors import ConfigurationError

NAME = "written_by"


def with_stamp(tree: DictConfig) -> DictConfig:
    """Return the settings with what this release writes beside them."""
    stamp = formats.stamp(formats.CONFIGURATION) | {"messages": formats.MESSAGES}
    return OmegaConf.merge(tree, {NAME: stamp})  # type: ignore[return-value]


def without(settings: Any, source: str) -> Any:
    """Return the settings alone. Raises ConfigurationError for those of a newer format; `source` holds them."""
    stamp = settings.pop(NAME, None)
    if refusal := formats.refusal(source, stamp, formats.CONFIGURATION):
        raise ConfigurationError(refusal)
    return settings


def check_messages(settings: DictConfig, run: str | None) -> None:
    """Raise ConfigurationError where a run, which has these settings, speaks in other messages than this process."""
    stamp = settings.get(NAME)
    theirs = stamp.get("messages", 1) if isinstance(stamp, DictConfig) else 1
    if theirs != formats.MESSAGES:
        release = formats.release_of(None if stamp is None else OmegaConf.to_container(stamp))
        raise ConfigurationError(
            f"run: {run} is of {release}, whose processes speak in messages of format {theirs}, and this is Warren "
            f"{__version__}, with format {formats.MESSAGES}; start this process by the run's release"
        )
