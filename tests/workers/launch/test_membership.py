"""Tests of launchers' leases: one launcher has a place, and a superseded one finds out before it touches anything."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
import redis
from support.lease_holders import held_elsewhere
from support.waiting import PATIENCE, until

from tasks.admin.cleanup import remove_run
from tasks.app import create_app
from tasks.app.reader import token_key
from tasks.codec.shared_memory import SharedFolder
from tasks.events import STATUS, Subscription
from tasks.topology import Topology
from warren.errors import ConfigurationError
from workers.launch.hosts import membership
from workers.launch.hosts import places as hosts
from workers.launch.hosts.following import Following
from workers.launch.hosts.membership import Membership, Presence, Superseded
from workers.launch.hosts.places import Leading
from workers.launch.spec import ProcessSpec, RunSpec, ServersSpec
from workers.runtime.lease import Lease
from workers.runtime.run_status import CLOSED, Ending
from workers.servers import Servers


@pytest.fixture(autouse=True)
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no lease run out by itself, however long this process is stopped: tests that want one to end delete it."""
    monkeypatch.setattr(membership, "LEASE", 600.0)


@pytest.fixture
def client(embedded: Servers) -> Any:
    return redis.Redis.from_url(embedded.redis_url)


def test_a_place_is_taken_once_and_the_holder_is_named(embedded: Servers, run_name: str) -> None:
    first, second = (Membership(embedded.redis_url, Topology(run_name)) for _ in range(2))
    first.take(True, Presence("alone"))
    with pytest.raises(ConfigurationError, match=rf"run {run_name} is led already by process \d+ on .*; name another"):
        second.take(True, Presence("alone"))
    first.renew(True, Presence("alone", ready=True))
    assert second.leader() == Presence("alone", ready=True, token=first.token)
    second.leave(True, "alone")
    assert first.leader() is not None, "a launcher gave up the place of another"
    first.leave(True, "alone")
    assert second.leader() is None


def test_a_launcher_whose_lease_ran_out_goes_on_unless_another_took_its_place(
    embedded: Servers, client: Any, run_name: str
) -> None:
    first, second = (Membership(embedded.redis_url, Topology(run_name)) for _ in range(2))
    first.take(True, Presence("alone"))
    client.delete(f"warren.{run_name}:leader")  # the lease runs out
    first.renew(True, Presence("alone"))
    client.delete(f"warren.{run_name}:leader")
    second.take(True, Presence("alone"))
    with pytest.raises(Superseded, match=r"process \d+ on \S+ has taken this one's place as alone of run"):
        first.renew(True, Presence("alone"))
    client.delete(f"warren.{run_name}:leader")  # the second launcher is silent for a while, too
    with pytest.raises(Superseded):
        first.renew(True, Presence("alone"))
    second.renew(True, Presence("alone"))


def test_a_superseded_leader_removes_nothing(embedded: Servers, client: Any, run_name: str) -> None:
    topology = Topology(run_name)
    app = create_app(topology, embedded.broker_url, embedded.redis_url)
    spec = RunSpec("services", run_name, "", None, {}, (), ServersSpec())  # type: ignore[arg-type]
    first = Leading(spec, Membership(embedded.redis_url, topology), app, topology, embedded.redis_url)
    first.begin()
    first.membership.rest()  # suspended
    client.delete(f"warren.{run_name}:leader")
    second = Membership(embedded.redis_url, topology)
    second.take(True, Presence("alone"))
    client.set(f"warren.{run_name}:pool", "the successor's")
    with pytest.raises(Superseded):
        first.announce_end(0)
    with pytest.raises(Superseded):
        first.remove(topology)
    assert client.get(f"warren.{run_name}:pool") == b"the successor's"
    assert second.leader() is not None
    remove_run(app, client, topology)


def test_temporary_servers_keep_a_runs_keys_but_shared_memory_is_removed(
    embedded: Servers, client: Any, run_name: str
) -> None:
    topology = Topology(run_name)
    app = create_app(topology, embedded.broker_url, embedded.redis_url)
    spec = RunSpec("services", run_name, "", None, {}, (), ServersSpec())  # type: ignore[arg-type]
    leading = Leading(spec, Membership(embedded.redis_url, topology), app, topology, embedded.redis_url)
    leading.begin()
    client.set(token_key(topology), "0123456789abcdef")
    shared = SharedFolder("0123456789abcdef")
    shared.make()
    assert embedded.temporary
    leading.remove(topology, temporary=True)
    assert client.get(token_key(topology)) is not None
    assert not shared.path.exists()
    remove_run(app, client, topology)


def test_a_run_is_not_closed_once_the_next_launcher_may_open_it(
    embedded: Servers, client: Any, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leading, ending = _sweeping(embedded, run_name), Ending(client, f"warren.{run_name}:")
    leading.begin()
    leave = leading.membership.leave

    def then_another_opens(leader: bool, host: str) -> None:
        leave(leader, host)
        ending.clear()

    monkeypatch.setattr(leading.membership, "leave", then_another_opens)
    leading.remove(leading.topology)
    assert ending.state() is None


def test_a_new_leader_sweeps_leftovers_only_once_it_has_the_place(
    embedded: Servers, client: Any, run_name: str
) -> None:
    topology = Topology(run_name)
    app = create_app(topology, embedded.broker_url, embedded.redis_url)
    client.set(f"warren.{run_name}:pool", "of a run that goes on")
    holder = Membership(embedded.redis_url, topology)
    holder.take(True, Presence("alone"))
    spec = RunSpec("services", run_name, "", None, {}, (), ServersSpec(), sweep=True)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="is led already"):
        Leading(spec, Membership(embedded.redis_url, topology), app, topology, embedded.redis_url).begin()
    assert client.get(f"warren.{run_name}:pool") is not None
    holder.leave(True, "alone")
    leading = Leading(spec, Membership(embedded.redis_url, topology), app, topology, embedded.redis_url)
    leading.begin()
    assert client.get(f"warren.{run_name}:pool") is None
    assert leading.membership.leader() is not None
    leading.membership.rest()
    remove_run(app, client, topology)


def test_a_thread_holds_a_place_for_longer_than_its_lease(
    embedded: Servers, client: Any, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "LEASE", 8.0)
    first, key = Membership(embedded.redis_url, Topology(run_name)), f"warren.{run_name}:leader"
    first.take(True, Presence("alone"))
    first.hold()
    first.renew(True, Presence("alone", status=3))
    client.pexpire(key, 600)  # only the thread lengthens it from here on
    until(lambda: client.pttl(key) > 1000)
    client.delete(key)  # the lease ran out, and no launcher has taken the place
    assert until(first.leader).status == 3, "the thread did not keep the last presence"
    first.leave(True, "alone")
    assert first._thread is None
    assert not client.exists(key)


def test_a_thread_leaves_a_place_to_its_successor(
    embedded: Servers, client: Any, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "LEASE", 0.4)
    first, key = Membership(embedded.redis_url, Topology(run_name)), f"warren.{run_name}:leader"
    first.take(True, Presence("alone"))
    successor = b"0" * 16 + json.dumps({"host": "alone", "machine": "m", "pid": 4}).encode()
    client.set(key, successor)
    first.hold()
    assert first._thread is not None
    first._thread.join(PATIENCE)
    assert not first._thread.is_alive()
    assert client.get(key) == successor
    with pytest.raises(Superseded, match="process 4 on m has taken"):
        first.renew(True, Presence("alone"))


def test_a_launcher_that_takes_long_to_stop_keeps_its_place(
    embedded: Servers, client: Any, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "LEASE", 8.0)
    leading = _sweeping(embedded, run_name)
    leading.begin()
    leading.announce_end(0)
    key = f"warren.{run_name}:leader"
    for _ in range(2):  # a supervisor that stops processes does not renew the lease meanwhile
        client.pexpire(key, 600)
        until(lambda: client.pttl(key) > 1000)
    monkeypatch.setattr(membership, "LEASE", 600.0)
    client.pexpire(key, 600_000)  # from here on it cannot run out while this process is stopped
    with pytest.raises(ConfigurationError, match="is led already"):
        _sweeping(embedded, run_name).begin()
    leading.remove(leading.topology)
    assert list(client.scan_iter(f"warren.{run_name}:*")) == []


def test_a_sweep_of_a_live_run_is_refused(
    embedded: Servers, client: Any, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "DEAD_WITHIN", 0.5)
    client.set(f"warren.{run_name}:pool", "weights")
    learner = Lease(client, f"warren.{run_name}:", "learner of player main", seconds=600.0)
    learner.take(threading.Event())
    leading, said = _sweeping(embedded, run_name), []
    leading.say = said.append
    with pytest.raises(
        ConfigurationError, match=r"is running: learner of player main .* name another run with run=NAME"
    ):
        leading.begin()
    assert said[0].startswith(f"waiting up to 0.5 s for an earlier run {run_name} to end: learner of player main")
    monkeypatch.setattr(leading, "_wait_for_leases", lambda asked: None)  # the learner begins right after the wait
    with pytest.raises(ConfigurationError, match="is running: learner of player main"):
        leading.begin()
    assert client.get(f"warren.{run_name}:pool") == b"weights"
    assert not client.exists(f"warren.{run_name}:leader", f"warren.{run_name}:leader:last")
    learner.release()


def test_a_sweep_waits_for_the_leases_of_dead_processes(embedded: Servers, client: Any, run_name: str) -> None:
    client.set(f"warren.{run_name}:pool", "weights")
    dead = held_elsewhere(client, f"warren.{run_name}:", "learner of player main")
    leading, said = _sweeping(embedded, run_name), []

    def runs_out(text: str) -> None:
        said.append(text)
        dead.release()

    leading.say = runs_out
    leading.begin()
    assert len(said) == 1 and "learner of player main (process 77 on gpu-3)" in said[0]
    assert client.get(f"warren.{run_name}:pool") is None
    leading.remove(leading.topology)


def test_waiting_for_dead_processes_ends_when_asked(embedded: Servers, client: Any, run_name: str) -> None:
    held_elsewhere(client, f"warren.{run_name}:", "work")
    with pytest.raises(KeyboardInterrupt):
        _sweeping(embedded, run_name).begin(lambda: True)
    assert not client.exists(f"warren.{run_name}:leader")


def _sweeping(servers: Servers, run: str) -> Leading:
    topology = Topology(run)
    app = create_app(topology, servers.broker_url, servers.redis_url)
    spec = RunSpec("services", run, "", None, {}, (), ServersSpec(), sweep=True)  # type: ignore[arg-type]
    return Leading(spec, Membership(servers.redis_url, topology), app, topology, servers.redis_url)


@pytest.mark.parametrize(
    "stored",
    [None, b"", b"x", b"\xff" * 40, b"0123456789abcdef", b"0123456789abcdef{}", b"0123456789abcdef[1]",
     b'0123456789abcdef{"host": 3}', b'0123456789abcdef{"host": "a", "left": "many"}',
     b'0123456789abcdef{"host": "a", "status": "0"}'],
)  # fmt: skip
def test_an_invalid_presence_is_read_as_none(stored: bytes | None) -> None:
    assert Presence.read(stored) is None


def test_a_presence_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    text = json.dumps({"host": "a", "left": 3, "machine": "m", "pid": 4, "mood": "good"}).encode()
    found = Presence.read(b"0123456789abcdef" + text)
    assert found is not None and (found.host, found.left, found.where) == ("a", 3, "process 4 on m")


def test_the_hosts_of_a_run_are_found_without_scanning_redis(
    embedded: Servers, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, *followers = (Membership(embedded.redis_url, Topology(run_name)) for _ in range(3))
    leader.take(True, Presence("master"))
    assert leader.hosts() == {}
    for name, follower in zip(("box-2", "box-3"), followers, strict=True):
        follower.take(False, Presence(name, left=1))
    monkeypatch.setattr(leader._redis, "scan_iter", None)
    assert {name: presence.left for name, presence in leader.hosts().items()} == {"box-2": 1, "box-3": 1}
    followers[0].leave(False, "box-2")
    leader._redis.delete(f"warren.{run_name}:host:box-3")  # its lease runs out
    assert leader.hosts() == {}
    followers[1].renew(False, Presence("box-3"))
    assert set(leader.hosts()) == {"box-3"}
    leader.leave(True, "master")


@pytest.mark.parametrize("greeted", [True, False])  # False: it joined after the leader's last beat
def test_a_leader_waits_as_long_as_followers_may_take_to_stop(
    embedded: Servers, client: Any, run_name: str, greeted: bool
) -> None:
    leading, follower = _sweeping(embedded, run_name), Membership(embedded.redis_url, Topology(run_name))
    learner = ProcessSpec("learner", range(1), (), grace=60.0, longest=180.0)
    leading.spec = replace(leading.spec, processes=(learner,))
    assert leading.leave_within >= 2 * 180.0
    leading.begin()
    follower.take(False, Presence("box-2"))
    follower.hold()
    leading._seen, said = leading.membership.hosts() if greeted else {}, []
    key = f"warren.{run_name}:leader"

    def leaves(text: str) -> None:
        said.append(text)
        assert client.exists(key)
        follower.leave(False, "box-2")

    leading.say = leaves
    leading.await_others(0)
    assert said == ["waiting for host box-2 to stop"]
    leading.remove(leading.topology)


def test_roles_started_by_hand_hear_that_a_run_is_closed_before_its_account(
    embedded: Servers, client: Any, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leading = _sweeping(embedded, run_name)
    leading.begin()
    monkeypatch.setattr(hosts, "END_WITHIN", PATIENCE)
    role = held_elsewhere(client, f"warren.{run_name}:", "actor-1000")

    def heard(figures: dict[str, Any]) -> None:
        assert figures["state"] == CLOSED
        role.release()

    listening = Subscription(leading.app, leading.topology, {STATUS: heard}, "actor-1000").start()
    leading.await_others(0)
    assert not client.exists(f"warren.{run_name}:leases")
    listening.stop()
    monkeypatch.setattr(hosts, "END_WITHIN", 0.3)
    held_elsewhere(client, f"warren.{run_name}:", "actor-1001")
    said: list[str] = []
    leading.say = said.append
    leading.await_others(0)
    assert said[-1] == "warning: not waiting any longer for actor-1001 (process 77 on gpu-3)"
    leading.remove(leading.topology)


class Share:
    """The share of a host whose updates take 30 s."""

    playing = True

    def ready(self) -> bool:
        return True

    def left(self) -> int:
        return 0

    def play(self) -> None:
        pass

    def update_seconds(self) -> float:
        return 30.0


def test_a_follower_gets_the_update_time_from_its_leader(embedded: Servers, run_name: str) -> None:
    leading = _sweeping(embedded, run_name)
    leading.begin()
    following = Following(
        leading.spec, Membership(embedded.redis_url, leading.topology), leading.app, leading.topology, leading.redis_url
    )
    leading.beat(Share())
    following.begin(lambda: False)
    assert following.beat(Share()) is None
    assert following.update == 30.0
    leading.announce_end(0)
    assert following.beat(Share()) == 0 and following.update == 30.0
    following.leave(0)
    leading.remove(leading.topology)
