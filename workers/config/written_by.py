"""The release that wrote a configuration, and the formats of its run: a table `written_by` beside the settings."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from warren import __version__, formats
from warren.errors import ConfigurationError

NAME = "written_by"


def stamp() -> dict[str, Any]:
    """Return the table by itself, with this release."""
    return {NAME: formats.stamp(formats.CONFIGURATION) | {"messages": formats.MESSAGES}}


def taken_from(settings: dict[Any, Any], source: str) -> str:
    """Remove the stamp from the settings in `source`; return what to add to errors if another release wrote them.

    Raises ConfigurationError for settings of a newer format.
    """
    stamp = settings.pop(NAME, None)
    stamp = stamp if isinstance(stamp, dict) and stamp else None
    if refusal := formats.refusal(source, stamp, formats.CONFIGURATION):
        raise ConfigurationError(refusal)
    if stamp is None or stamp.get("release") == __version__:
        return ""
    release = formats.release_of(stamp)
    return f"; {source} was written by {release}, and this is Warren {__version__}: use {release}"


def check_messages(settings: DictConfig, run: str | None) -> None:
    """Raise ConfigurationError if the run with these settings uses another message format than this process."""
    given = settings.get(NAME)
    stamp = OmegaConf.to_container(given) if isinstance(given, DictConfig) and given else None
    theirs = stamp.get("messages", 1) if isinstance(stamp, dict) else 1
    if theirs != formats.MESSAGES:
        release = formats.release_of(stamp)
        raise ConfigurationError(
            f"run: {run} is of {release}, whose processes speak in messages of format {theirs}, and this is Warren "
            f"{__version__}, with format {formats.MESSAGES}; start this process by the run's release"
        )
