"""Transport of records to the run's folder by a stream in Redis, to which actors and evaluators on any host add.

The league worker that keeps the run's folder (league_id=0) writes the records there, and then takes them out. The
stream is bounded: if nobody takes records out, or they come faster than a disk can take them, the oldest are dropped.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import redis

from workers.replays.folder import ReplayWriter
from workers.replays.match_record import RecordedMatch

logger = logging.getLogger(__name__)

LARGEST = 256 << 10  # bytes of one record
WAITING = 1024  # records in the stream
AT_ONCE = 64  # records taken out at once
LOOK_EVERY = 0.5  # s between looks while no record waits
AGAIN_AFTER = 1.0  # s until the next try when Redis is away or the disk is full


def stream_key(key_prefix: str) -> str:
    """Return the name of the stream of the run whose keys begin with `key_prefix`."""
    return f"{key_prefix}replays"


class ReplaySender:
    """Adds records to the stream; a record that cannot be sent is lost, and the log says so."""

    def __init__(self, client: Any, key_prefix: str) -> None:
        self._redis, self._key = client, stream_key(key_prefix)
        self._warned = False

    def send(self, record: RecordedMatch) -> None:
        """Send a record."""
        data = record.to_bytes()
        if len(data) > LARGEST:
            logger.warning(
                "match %s is not recorded: its %d games take %d bytes, a record may take %d; lower league.match_games",
                record.match, len(record.games), len(data), LARGEST,
            )  # fmt: skip
            return
        try:
            with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.xlen(self._key)
                pipeline.xadd(self._key, {"record": data}, maxlen=WAITING, approximate=False)
                waiting, _ = pipeline.execute()
        except redis.RedisError as error:
            logger.warning("match %s is not recorded: %s", record.match, error)
            return
        if waiting >= WAITING and not self._warned:
            self._warned = True
            logger.warning(
                "records of matches are lost: %d wait to be written by the league worker with league_id=0; is it up, "
                "and its disk not full? Or raise league.replay_every", waiting,
            )  # fmt: skip


class ReplayKeeper:
    """Writes records that arrive in the stream to `folder`."""

    def __init__(self, client: Any, key_prefix: str, folder: Path, bound: int) -> None:
        self._redis, self._key = client, stream_key(key_prefix)
        self._writer = ReplayWriter(folder, bound)

    def run(self, stopping: threading.Event) -> None:
        """Work until `stopping` is set, through outages of Redis and full disks; then write the remaining records."""
        while not stopping.is_set():
            try:
                if not self.step():
                    stopping.wait(LOOK_EVERY)
            except (redis.RedisError, OSError) as error:
                logger.warning("records of matches are not written for a moment: %s", error)
                stopping.wait(AGAIN_AFTER)
        try:
            self.write_all()
        except (redis.RedisError, OSError) as error:
            logger.warning("the last records of matches are lost: %s", error)

    def write_all(self) -> None:
        """Write all records of the stream, and close the file. Raises RedisError and OSError."""
        try:
            while self.step():
                pass
        finally:
            self._writer.close()

    def step(self) -> int:
        """Write the oldest records of the stream; return how many. Raises RedisError and OSError."""
        found = self._redis.xrange(self._key, count=AT_ONCE)
        if found:
            self._writer.append([fields[b"record"] for _, fields in found])
            self._redis.xdel(self._key, *(number for number, _ in found))
        return len(found)


def write_the_rest(client: Any, key_prefix: str, folder: Path, bound: int) -> None:
    """Write the records that a killed run left in its stream; remove the stream. Raises RedisError and OSError."""
    ReplayKeeper(client, key_prefix, folder, bound).write_all()
    client.delete(stream_key(key_prefix))
