"""Test of a league's gateway that is killed during its matches: they expire, and games go on at the others."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.league_run import check_books
from support.nim_run import NimRun

from league.redis.store import Store
from league.state.replay import fold, read_file
from workers.servers import Servers
from workers.servers.ports import free_port


def matches_of_a_killed_gateway(run: NimRun, store: Store, rabbitmqctl: Callable[..., list[str]]) -> set[str]:
    """Kill gateway 0 while it holds matches; return those it still held once the league had processed all reports."""
    killed = run.role("gateway-0")

    def held() -> dict[str, str]:
        """Return match -> holder, for matches of gateway 0."""
        return {one.id: one.holder for one in store.load().matches.values() if one.holder.startswith("actor-0-")}

    holders = set(run.until(held).values())
    killed.kill()
    killed.wait()
    reports = f"warren.{run.name}.service.league.report\t0"
    run.until(lambda: reports in rabbitmqctl("list_queues", "name", "messages"))
    left = {match for match, holder in held().items() if holder in holders}  # its successor's matches do not count
    run.until(lambda: run.role("gateway-0").pid != killed.pid)
    run.until(lambda: not left & store.load().matches.keys())
    return left


@pytest.mark.slow
def test_matches_of_a_gateway_that_is_killed_expire_and_the_books_add_up(
    tmp_path: Path, servers: Servers, rabbitmqctl: Callable[..., list[str]]
) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    settings = ("actors=2", "restarts=10000", "league.lease=5")
    with NimRun(tmp_path, free_port(), *settings, **urls) as run:
        store = run.store(servers.redis_url)
        run.until(lambda: store.load().counters["counted"] > 4)
        kills = 1
        while not (left := matches_of_a_killed_gateway(run, store, rabbitmqctl)):
            kills += 1
        counters = check_books(store)
        ends = {event["match"]: event["as"] for _, event in store.events() if event["event"] == "ended"}
        assert {ends[match] for match in left} == {"expired"}
        assert counters["expired"] >= len(left)
        run.until(lambda: store.load().counters["counted"] > counters["counted"] + 4)

        # Games go on while the league does not answer; their results are reported once it is back.
        for process in run.processes("league"):
            process.kill()
            process.wait()
        counted = store.load().counters["counted"]
        run.until(lambda: store.load().counters["counted"] > counted + 4)
        check_books(store)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    saved = fold(read_file(run.folder / "league" / "league.jsonl"))
    ended = sum(saved.counters[how] for how in ("counted", "expired", "aborted"))
    assert saved.counters["issued"] == ended + len(saved.matches) > counters["issued"]
    assert run.output.count("ended with status") == kills + 1, f"a process that was not killed has died:\n{run.output}"
    assert run.account()["learned"] > 0
