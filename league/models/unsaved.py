"""Leagues of which Redis may hold more than their folder, since the process that kept the folder was killed.

    FOLDER/unsaved.json     key prefixes of runs in Redis that began with this folder, or saved to it

A run notes its prefix before it puts a league into Redis, and removes the note once all of the league is saved. The
next run with the folder first saves what the noted runs left in Redis; then it begins with the folder as usual.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from league.models.pool import Pool
from league.models.saved_stream import SavedStream
from league.models.snapshots import Snapshots
from league.redis.store import Store
from league.state.fields import event_order
from warren.errors import LeagueError
from warren.files import read_json, write_whole

logger = logging.getLogger(__name__)

FILE = "unsaved.json"
KEYS = 1000  # number removed in one call


class Unsaved:
    """The note in a league's `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / FILE

    @property
    def prefixes(self) -> list[str]:
        """Key prefixes of runs whose league may not be saved, the oldest first."""
        return [str(prefix) for prefix in read_json(self.path).get("prefixes", [])]

    def begin(self, client: Any, prefix: str) -> None:
        """Save what earlier runs left in the Redis of `client`, and note that the run of `prefix` may get ahead."""
        self.folder.mkdir(parents=True, exist_ok=True)
        earlier = [one for one in self.prefixes if one != prefix]
        self._note([*earlier, prefix])
        for one in earlier:
            self._take_in(client, one)
        self._note([prefix])

    def clear(self) -> None:
        """Remove the note: the folder holds the whole league."""
        self.path.unlink(missing_ok=True)

    def _note(self, prefixes: list[str]) -> None:
        write_whole(self.path, json.dumps({"prefixes": prefixes}) + "\n")

    def _take_in(self, client: Any, prefix: str) -> None:
        store = Store(client, f"{prefix}league:")
        if not store.exists():
            return
        snapshots = Snapshots(self.folder, store, Pool(client, prefix, cache_bytes=0))
        if is_ahead(snapshots.stream, store):
            logger.warning("%s holds more of the league than Redis under %s does", self.folder, store.prefix)
            return
        before = snapshots.stream.read().state.counted
        try:
            snapshots.save()
        except LeagueError as error:
            logger.warning("what Redis holds under %s is left there: %s", store.prefix, error)
            return
        counted = snapshots.stream.read().state.counted - before
        logger.info("%s: saved what a killed run left in Redis, %d matches more", self.folder, counted)
        # Delete the settings first: should this be killed midway, a league without them is not saved again.
        client.delete(f"{store.prefix}settings")
        for part in (store.prefix, f"{prefix}pool:"):
            keys = list(client.scan_iter(match=f"{part}*", count=KEYS))
            for start in range(0, len(keys), KEYS):
                client.unlink(*keys[start : start + KEYS])


def is_ahead(stream: SavedStream, store: Store) -> bool:
    """Return True if the folder holds newer events than Redis, which has lost its last ones."""
    return event_order(stream.read().last_event) > event_order(store.last_event())
