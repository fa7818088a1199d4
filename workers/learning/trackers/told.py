"""Facts for trackers: a learner's settings, its figures after each update, and the last ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from workers.config.schema import Config, to_yaml
from workers.config.trackers import Tracked, Tracker

logger = logging.getLogger(__name__)

LEFT_OUT = ("broker.", "written_by.")


class Trackers:
    """The trackers of one learner. A tracker that cannot begin is left out."""

    def __init__(self, trackers: Sequence[Tracker], tracked: Tracked) -> None:
        self._last: dict[str, Any] = {}
        self._trackers = [one for one in trackers if _begun(one, tracked)]

    def point(self, figures: Mapping[str, Any], losses: Mapping[str, float]) -> None:
        """Give all trackers the figures of an update. Raises the first of their errors, once all have been told."""
        self._last = dict(figures)
        errors = []
        for tracker in self._trackers:
            try:
                tracker.point(figures, losses)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def end(self) -> None:
        """Give all trackers the last figures; their errors are logged."""
        for tracker in self._trackers:
            try:
                tracker.end(self._last)
            except Exception:
                logger.exception("%s could not end", type(tracker).__name__)


def _begun(tracker: Tracker, tracked: Tracked) -> bool:
    try:
        tracker.begin(tracked)
    except Exception:
        logger.exception("%s could not begin and gets no figures", type(tracker).__name__)
        return False
    return True


def hyperparameters(config: Config) -> dict[str, Any]:
    """Return the settings by dotted name, without secrets and without those that are not set."""
    values = _flat(yaml.safe_load(to_yaml(config)))
    return {name: value for name, value in values if value is not None and not name.startswith(LEFT_OUT)}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
