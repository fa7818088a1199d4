"""Tests of the instruments for a run's growth: simulated queues, delayed links, grown costs."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.waiting import PATIENCE

from benchmarks.apparatus import points
from benchmarks.apparatus.hosts_on_a_switch import joined, lacking
from benchmarks.apparatus.jobs import TookTooLong
from benchmarks.apparatus.points import Points, TimeLeft
from benchmarks.growth.runs import Cost, grown, point
from benchmarks.growth.simulation import Run, Service, ladder

SERVICE = Service(
    steps=1000, collect=1.0, broker=1e-3, redis=1e-4, receive=1e-3, update=0.1, fan_out=1e-5,
    segment_bytes=1e4, weights_bytes=1e4,
)  # fmt: skip


def test_few_actors_limit_the_rate_and_many_leave_it_to_the_slowest_part() -> None:
    few = Run(SERVICE, 5).simulate()
    assert few.rate == pytest.approx(5_000, rel=0.1) and few.limit == "actors"
    many = Run(SERVICE, 40).simulate()
    assert many.rate == pytest.approx(10_000, rel=0.1) and many.limit == "learner's update"
    assert many.busy["broker"] == pytest.approx(0.01, abs=0.005)


@pytest.mark.parametrize(
    ("slow", "limit"),
    [
        ({"broker": 0.2}, "broker"),
        ({"redis": 0.2}, "Redis"),
        ({"receive": 0.2}, "learner's receive"),
        ({"fan_out": 0.5, "update": 0.01}, "weights' fanout"),
        ({"segment_bytes": 25e6}, "link in"),
    ],
)
def test_a_slowed_part_becomes_the_limit(slow: dict[str, float], limit: str) -> None:
    assert Run(replace(SERVICE, **slow), 40).simulate().limit == limit


def test_all_parts_share_a_single_core() -> None:
    alone = Run(SERVICE, 4, cores=1).simulate()
    assert alone.rate == pytest.approx(1000 / (1.0 + 0.1 + 0.0021), rel=0.1)


def test_limits_are_reported_in_order_as_each_is_removed() -> None:
    steps = ladder(replace(SERVICE, receive=0.02), 100, updates=6)
    assert [part for part, _ in steps[:2]] == ["learner's update", "learner's receive"]
    assert steps[0][1] < steps[1][1]


def test_only_costs_that_grew_are_reported() -> None:
    assert grown({"1": {"actor": 2.0, "redis": 1.0}, "9": {"actor": 5.0, "redis": 1.1}}, {"1": {}, "9": {}}) == {
        "actor us": 2.5
    }


def test_cores_of_half_the_speed_halve_the_rate() -> None:
    assert Run(SERVICE.slower(2.0), 4, cores=1).simulate().rate == pytest.approx(
        Run(SERVICE, 4, cores=1).simulate().rate / 2, rel=0.05
    )


def test_points_are_kept_for_a_repeated_command(tmp_path: Path) -> None:
    first = Points(tmp_path / "kept", "part")
    assert first.get(size=1, turn=0) is None
    first.add({"rate": 2.0}, size=1, turn=0)
    again = Points(tmp_path / "kept", "part")
    assert again.get(turn=0, size=1) == {"rate": 2.0}
    assert again.get(turn=1, size=1) is None
    assert Points(None, "part").get(turn=0, size=1) is None


def test_a_run_too_long_for_the_time_left_is_reported_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(points.time, "monotonic", lambda: now[0])
    time_left = TimeLeft(100.0)

    def made(patience: float) -> Cost:
        now[0] += 40.0
        if patience < 40.0:
            raise TookTooLong("it has not ended")
        return Cost({"actor": 1.0}, {}, 5.0, {}, 2.0)

    kept = Points(None, "part")
    assert point("first", made, time_left, kept, turn=0) == made(40.0)  # 80 s
    assert point("second", made, time_left, kept, turn=1) is None
    assert "second would not end within --seconds 100" in capsys.readouterr().out
    assert point("first", made, time_left, kept, turn=0) is not None
    assert point("third", made, TimeLeft(10.0), kept, turn=2) is None
    assert "third: it has not ended" in capsys.readouterr().out


def test_packets_between_hosts_on_a_switch_have_the_given_delay() -> None:
    if why := lacking():
        pytest.skip(why)
    delay = 0.05
    try:
        with joined(("here", "there"), delay) as (here, there), socket.create_server((here.address, 0)) as server:
            code = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2]))).recv(1)"
            line = [sys.executable, "-c", code, here.address, str(server.getsockname()[1])]
            with subprocess.Popen(there.command(line)) as client:
                connection, _ = server.accept()
                with connection:
                    began = time.monotonic()
                    connection.sendall(b"x")
                    assert client.wait(PATIENCE) == 0
                    assert time.monotonic() - began >= delay
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine lets nobody make network namespaces: {error}")
