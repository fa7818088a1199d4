"""A worker process that obeys its messages and records events in a Redis list."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import amqp
import redis
from kombu.message import Message

from support import brokers, launched
from support.waiting import until
from tasks.app import create_app
from tasks.topology import Topology
from tasks.worker.pool import OneThreadPool
from workers.servers import Servers


def close_connections(servers: Servers) -> None:
    """Close every connection to the broker from the broker's side."""
    if servers.kind == "redis":
        # In one step: a client that reconnected in between would lose the new connection too.
        with redis.Redis.from_url(servers.broker_url).pipeline(transaction=True) as pipe:
            for kind in ("pubsub", "normal"):
                pipe.client_kill_filter(_type=kind, skipme=True)
            pipe.execute()
        return
    brokers.control(servers, "close_all_connections", "for a test")


class ObedientWorker:
    """A process that consumes the actor and the learner queue of `run`."""

    def __init__(self, run: str, broker_url: str, redis_url: str, log: Path, heartbeat: int = 30) -> None:
        self.topology = Topology(run)
        self.app = create_app(self.topology, broker_url, redis_url)
        self.log, self._redis = log, redis.Redis.from_url(redis_url)
        tests = Path(__file__).parents[1]
        environment = {**os.environ, "PYTHONPATH": f"{tests.parent}{os.pathsep}{tests}"}
        words = (run, broker_url, redis_url, str(heartbeat))
        self.process = launched.start(__file__, *words, log=log, given=environment)
        try:
            self.noted("ready")
        except BaseException:
            self.close()
            raise

    def do(self, deed: str, value: Any = None, **options: Any) -> Any:
        """Send an order; return its AsyncResult."""
        return self.app.send_task("actor.rollout", args=(deed, value), **options)

    def let_go(self) -> None:
        """End all orders `wait`, also later ones."""
        self._redis.set(f"go:{self.topology.run}", 1)

    def notes(self, *kinds: str) -> list[list[Any]]:
        """Return all notes so far, or those of some kinds: [kind, value, thread]."""
        notes = [json.loads(line) for line in self._redis.lrange(f"notes:{self.topology.run}", 0, -1)]
        return [note for note in notes if not kinds or note[0] in kinds]

    def noted(self, kind: str, value: Any = None, times: int = 1) -> None:
        """Wait until `kind` was noted with `value` `times` times; fail if the worker ends."""

        def enough() -> bool:
            assert self.process.poll() is None, f"the worker has ended:\n{self.log.read_text()}"
            return len([note for note in self.notes(kind) if note[1] == value]) >= times

        until(enough, f"{kind} {value} in {self.log}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> ObedientWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(run: str, broker_url: str, redis_url: str, heartbeat: int) -> int:
    topology, client = Topology(run), redis.Redis.from_url(redis_url)
    app = create_app(topology, broker_url, redis_url)
    app.conf.broker_heartbeat = heartbeat

    def note(kind: str, value: Any = None) -> None:
        client.rpush(f"notes:{run}", json.dumps([kind, value, threading.current_thread().name]))

    @app.task(name="actor.rollout")
    def rollout(deed: str, value: Any) -> Any:
        note("began", value)
        if deed == "sleep":
            time.sleep(value)
        if deed == "wait":
            until(lambda: client.exists(f"go:{run}"), "let_go()")
        if deed == "raise":
            raise RuntimeError(value)
        note("ended", value)
        return value

    @app.task(name="learner.learn", ignore_result=True)
    def learn(results: Any) -> None:
        note("joined", results)

    @app.task(name="learner.round_failed", ignore_result=True)
    def round_failed(word: str) -> None:
        note("failed", word)

    acknowledge = Message.ack

    def noting_ack(message: Message, *args: Any, **kwargs: Any) -> None:
        acknowledge(message, *args, **kwargs)
        note("acknowledged")

    Message.ack = noting_ack
    beat = amqp.Connection.send_heartbeat

    def noting_beat(connection: Any) -> None:
        beat(connection)
        note("heartbeat")

    amqp.Connection.send_heartbeat = noting_beat
    with app.connection_for_write() as connection, connection.channel() as channel:
        for queue in topology.declared():
            queue(channel).declare()
    from celery import signals

    signals.worker_ready.connect(lambda **_: note("ready"), weak=False)
    worker = app.Worker(
        hostname=f"obedient@{run}",
        pool=OneThreadPool,
        concurrency=1,
        queues=[queue.name for queue in topology.task_queues()],
        loglevel="INFO",
        without_gossip=True,
        without_mingle=True,
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


if __name__ == "__main__":
    run, broker_url, redis_url, heartbeat = sys.argv[1:5]
    sys.exit(serve(run, broker_url, redis_url, int(heartbeat)))
