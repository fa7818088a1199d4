"""Tests of a learner's work beside its updates: sending weights, writing figures and checkpoints, counting time."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import redis
import torch
from support.learner_run import Run
from support.waiting import PATIENCE, until

from agents import Trajectory, Update
from agents.checkpoints import weights_from_bytes
from tasks.worker.running import recording
from warren.errors import ClaimError
from workers.learning.data_source import Arrival, OnPolicyQueue
from workers.learning.metrics import read_metrics
from workers.learning.publisher import Publisher
from workers.learning.recorder import Recorder
from workers.learning.settlement import Settlement
from workers.runtime.timing import Timing


class Pool:
    """A pool that can be held up, and be away."""

    def __init__(self) -> None:
        self.put_versions: list[int] = []
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Event()
        self.away = False

    def put(self, player: str, version: int, step: int, data: bytes) -> bool:
        self.asked.set()
        assert self.open.wait(PATIENCE)
        if self.away:
            raise redis.ConnectionError("Redis is away")
        _, stamp = weights_from_bytes(data)
        assert stamp["version"] == version
        self.put_versions.append(version)
        return True

    def version(self, player: str) -> int | None:
        return max(self.put_versions, default=None)


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def fired() -> list[int]:
    return []


@pytest.fixture
def publisher(pool: Pool, fired: list[int]) -> Publisher:
    events = SimpleNamespace(fire=lambda name, payload, another_follows: fired.append(payload["version"]))
    session: Any = SimpleNamespace(pool=pool, events=events)
    return Publisher(session, "main", "weights", Timing())


def weights(version: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    return {"w": torch.full((2,), float(version))}, {"player": "main", "version": version, "step": 10 * version}


def test_weights_replaced_while_others_are_being_sent_are_never_sent(
    publisher: Publisher, pool: Pool, fired: list[int]
) -> None:
    publisher.start(every=0.0)
    pool.open.clear()
    publisher.offer(*weights(1))
    assert pool.asked.wait(PATIENCE)
    for version in (2, 3, 4):
        publisher.offer(*weights(version))
    pool.open.set()
    publisher.stop()
    assert pool.put_versions == fired == [1, 4]
    assert publisher.version == 4


def test_weights_are_sent_at_most_as_often_as_configured_and_the_last_always(publisher: Publisher, pool: Pool) -> None:
    publisher.start(every=3600.0)
    publisher.offer(*weights(1))
    until(lambda: pool.put_versions == [1])
    for version in (2, 3):
        publisher.offer(*weights(version))
    publisher.flush()
    assert pool.put_versions == [1, 3]
    publisher.offer(*weights(4))
    publisher.stop()
    assert pool.put_versions == [1, 3, 4]


def test_a_pool_that_is_away_gets_the_weights_later(publisher: Publisher, pool: Pool) -> None:
    publisher.start(every=0.0)
    pool.away = True
    publisher.offer(*weights(1))
    until(lambda: "Redis is away" in publisher.failing)
    pool.away = False
    publisher.restore()
    assert pool.put_versions == [1]
    publisher.offer(*weights(2))
    publisher.stop()
    assert pool.put_versions == [1, 2]
    assert publisher.failing == ""


def test_weights_are_fired_again_after_an_event_that_could_not_be_sent(pool: Pool) -> None:
    refused, fired = threading.Event(), list[int]()

    def fire(name: str, payload: dict[str, Any], another_follows: bool) -> None:
        if not refused.is_set():
            refused.set()
            raise ClaimError("Redis has no memory left for the weights")
        fired.append(payload["version"])

    session: Any = SimpleNamespace(pool=pool, events=SimpleNamespace(fire=fire))
    publisher = Publisher(session, "main", "weights", Timing())
    publisher.start(every=0.0)
    publisher.offer(*weights(1))
    assert refused.wait(PATIENCE)
    publisher.offer(*weights(2))
    until(lambda: "no memory left" in publisher.failing)
    publisher.offer(*weights(3))
    publisher.stop()
    assert fired == [3] and publisher.failing == ""


def test_recorded_actions_run_in_order_and_all_before_the_end() -> None:
    recorder, done, go = Recorder(Timing()), list[int](), threading.Event()
    recorder.do("count", lambda: done.append(0))
    assert done == [0], "done at once without a thread"
    recorder.start()
    recorder.do("wait", lambda: go.wait(PATIENCE))
    for number in (1, 2, 3):
        recorder.do("count", lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == [0]
    go.set()
    recorder.stop()
    assert done == [0, 1, 2, 3]


def test_a_full_disk_is_reported_until_writing_succeeds_again() -> None:
    recorder = Recorder(Timing())

    def full() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError):
        recorder.do("write a checkpoint", full)
    recorder.start()
    recorder.do("write a checkpoint", full)
    recorder.do("write the metrics", lambda: None)
    until(lambda: recorder.failing.startswith("could not write a checkpoint: OSError"))
    recorder.do("write a checkpoint", lambda: None)
    recorder.stop()
    assert recorder.failing == ""


def trajectory(*versions: int) -> Trajectory:
    slots = len(versions)
    flat, done = np.zeros((4, slots), np.float32), np.zeros((4, slots), bool)
    return Trajectory(
        observation=flat[..., None], action=flat.astype(np.int64), reward=flat, terminated=done, truncated=done,
        extras={}, last={"observation": flat[0][..., None]}, cut={}, version=np.array(versions),
        episodes=np.zeros((0, 2), np.float32),
    )  # fmt: skip


def test_an_on_policy_queue_returns_each_trajectory_once_and_cuts_old_slots() -> None:
    source = OnPolicyQueue(max_staleness=2)
    assert not source.ready()
    dropped = [source.add(Arrival(0, {}, trajectory(*versions)), 10) for versions in ((10, 8), (7, 9), (1, 2))]
    assert dropped == [0, 4, 8]
    assert source.ready()
    data = source.sample()
    assert [one.version.tolist() for one in data.batch] == [[10, 8], [9]]
    source.feedback(data, Update())
    assert not source.ready()


def test_a_trainer_with_threads_leaves_the_same_files_as_one_without(tmp_path: Path, one_thread: None) -> None:
    left = {}
    for name in ("alone", "overlapping"):
        (tmp_path / name).mkdir()
        run = Run(tmp_path / name)
        trainer = run.trainer()
        if name == "overlapping":
            trainer.outlets.overlap()
            trainer.outlets.settlement.start()
            trainer.outlets.publisher.start(0.0, trainer.outlets.settlement.wait)
        for version in range(4):
            trainer.outlets.checkpoint_soon()
            assert trainer.learn([run.payload(version)]) == [None]
        trainer.close()
        _, stamp = weights_from_bytes(run.pool.models[4].data)
        points = [point["version"] for point in read_metrics(run.folder)]
        kept = sorted(path.name for path in (run.folder / "checkpoints").iterdir())
        weight = torch.cat([tensor.flatten() for tensor in trainer.state.policy.state_dict().values()])
        settled = sorted((kind, one) for told in run.settled for kind, each in told.items() for one in each)
        left[name] = (stamp, points, kept, weight.tolist(), settled)
        assert run.order[0] == "settle", "the ledger is told before the weights are published"
    assert left["alone"] == left["overlapping"]


def test_a_slow_ledger_delays_acknowledgements_and_weights_but_no_update(tmp_path: Path, one_thread: None) -> None:
    run, told = Run(tmp_path), threading.Event()
    noted = run.session.ledger.settle
    run.session.ledger.settle = lambda *call: (told.wait(PATIENCE), noted(*call))
    trainer = run.trainer()
    trainer.outlets.settlement.start()
    trainer.outlets.publisher.start(0.0, trainer.outlets.settlement.wait)
    for version in range(2):
        assert trainer.learn([run.payload(version)]) == [None]  # returns
    acknowledged = recording()
    assert acknowledged is not None and not acknowledged.done() and recording() is None
    assert not run.pool.models
    told.set()
    acknowledged.result(PATIENCE)
    until(lambda: 2 in run.pool.models)
    trainer.close()
    assert [one for told in run.settled for one in told["learned"]] == [(1, 32), (2, 32)]


def test_outcomes_that_redis_did_not_take_are_sent_again_before_the_next_ones() -> None:
    told: list[tuple[int, list[int]]] = []
    refusing = [True]

    def settle(settled: Any, teller: str, number: int) -> None:
        told.append((number, [one.segment.number for one in settled]))
        if refusing[0]:
            raise redis.ConnectionError("Redis is away")

    settlement = Settlement(cast(Any, SimpleNamespace(ledger=SimpleNamespace(settle=settle))))
    settlement.start()
    for number in range(3):
        settlement.add("learned", {"source": "a", "number": number, "steps": 8})
        done = settlement.soon(settlement.settle)
        assert done is not None
        settlement.wait()
        assert isinstance(done.exception(), redis.ConnectionError) == refusing[0]
        refusing[0] = number == 0
    settlement.stop()
    assert told == [(1, [0]), (1, [0]), (1, [0]), (2, [1]), (3, [2])], "again under their number, alone"
