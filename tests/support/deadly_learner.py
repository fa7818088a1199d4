"""`python deadly_learner.py BROKER REDIS RUN`: a learner that some segments kill.

The learn task takes batches of 4 segments, which are words here; one that begins with "deadly" kills the process. A
plain task does the same.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import redis

from tasks.app import create_app
from tasks.topology import Topology
from tasks.worker.batching import BatchTask
from tasks.worker.pool import OneThreadPool


def main(broker_url: str, redis_url: str, run: str) -> None:
    topology = Topology(run)
    app = create_app(topology, broker_url, redis_url, prefetch=8)
    if broker_url.startswith("redis"):  # RabbitMQ redelivers a dead worker's messages at once
        app.conf.broker_transport_options |= {"visibility_timeout": 1, "unacked_restore_interval": 0.5}
    store = redis.Redis.from_url(redis_url)

    def note(word: str) -> None:
        store.incr(f"{topology.key_prefix}ran:{word}")
        if word.startswith("deadly"):
            os.kill(os.getpid(), signal.SIGKILL)

    def learn(words: list[str]) -> list[Any]:
        for word in sorted(words, reverse=True):
            note(word)
        return [None] * len(words)

    app.task(learn, base=BatchTask, name="learner.learn", batch=4, minimum=1, ignore_result=True)
    app.task(note, name="learner.round_failed", ignore_result=True)
    with app.connection_for_write() as connection, connection.channel() as channel:
        for queue in topology.declared():
            queue(channel).declare()
    print("ready", flush=True)
    app.Worker(
        hostname="learner@test",
        pool=OneThreadPool,
        concurrency=1,
        queues=[topology.learner_queue().name],
        loglevel="WARNING",
        without_gossip=True,
        without_mingle=True,
        quiet=True,
    ).start()


if __name__ == "__main__":
    main(*sys.argv[1:4])
