"""Tests of dead letters on RabbitMQ: listed, shown, sent again, dropped, and never lost by a kill."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from support.calling import ROOT, Calling
from support.letters import command, fail, listed, waiting
from support.waiting import PATIENCE, until

from tasks import codec
from tasks.topology import Topology

# Kills the command just before it calls the method that the first argument names.
KILLED = """
import os, signal, sys
import amqp
method = sys.argv.pop(1)
setattr(amqp.Channel, method, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
from workers.ui.deadletters import main
main()
"""


def environment(run: Calling) -> dict[str, str]:
    given = {"WARREN_BROKER_URL": run.broker_url, "WARREN_REDIS_URL": run.redis_url, "WARREN_RUN": run.topology.run}
    return {**os.environ, **given, "PYTHONPATH": str(ROOT), "COLUMNS": "250"}


def test_dead_letters_are_listed_shown_and_dropped_when_asked(calling):
    calling.start(1)
    fail(calling, "first", "second")
    found = listed(calling)
    assert [one["service"] for one in found] == ["actor.push_badly"] * 2
    assert all("rejected" in one["reason"] and time.time() - one["died_at"] < 3600 and one["bytes"] for one in found)
    assert len({one["id"] for one in found}) == 2 and listed(calling) == found  # listing changes nothing
    (row,) = [line for line in command(calling).stdout.splitlines() if "actor.push_badly" in line]
    assert row.split()[1] == "2"
    identity = found[1]["id"]
    assert "2 dead letters have ids that begin so" in command(calling, "show", identity[:4]).stderr
    assert "actor.push_badly has 2 dead letters; name one id" in command(calling, "show", "actor.push_badly").stderr
    shown = json.loads(command(calling, "show", identity, "--json").stdout)
    assert shown["args"] == ["second"] and shown["exchange"] == calling.topology.service.name
    assert "second" in command(calling, "show", identity).stdout
    kept = command(calling, "drop", identity, answer="n\n")
    assert "drop 1 dead letters" in kept.stdout and "nothing was dropped" in kept.stdout and waiting(calling) == 2
    assert "1 dropped" in command(calling, "drop", identity, answer="y\n").stdout
    assert [one["id"] for one in listed(calling)] == [found[0]["id"]]
    assert "1 dropped" in command(calling, "drop", "--all", "--yes").stdout and listed(calling) == []
    assert "has no dead letters" in command(calling).stdout


def test_a_letter_that_is_sent_again_runs_and_becomes_a_letter_again(calling):
    calling.start(1)
    fail(calling, "again")
    before = listed(calling)[0]
    done = command(calling, "requeue", "actor.push_badly")
    assert done.returncode == 0 and "1 sent again" in done.stdout, done.stderr
    until(lambda: waiting(calling) == 1)
    after = listed(calling)[0]
    assert after["id"] == before["id"] and after["reason"] == before["reason"]


def test_a_call_that_must_not_run_twice_runs_when_a_person_sends_it_again(calling):
    calling.start(2, may_end=True)
    calling.solver.send("actor.push_deadly_once", "deadly")
    assert calling.solver.flush(PATIENCE) == 0
    until(lambda: waiting(calling) == 1)
    (letter,) = listed(calling)
    assert "was delivered once" in letter["reason"] and time.time() - letter["died_at"] < 3600
    assert calling.ran("deadly") == 1
    assert "1 sent again" in command(calling, "replay", letter["id"]).stdout
    until(lambda: calling.ran("deadly") == 2)


def test_a_long_body_is_shown_and_sent_again_while_it_is_there(calling):
    calling.start(1)
    long = "x" * (2 << 20)
    fail(calling, long)
    (letter,) = listed(calling)
    assert letter["long"] and letter["bytes"] > 2 << 20
    assert json.loads(command(calling, "show", letter["id"], "--json", "--whole").stdout)["args"] == [long]
    (cut,) = json.loads(command(calling, "show", letter["id"], "--json").stdout)["args"]
    assert cut.endswith("... of 2,097,152 characters") and len(cut) < 3_000
    assert "1 sent again" in command(calling, "replay", "--all").stdout
    until(lambda: waiting(calling) == 1)
    keys = calling.solver._directory._redis.keys(f"{calling.topology.key_prefix}claim:*")
    calling.solver._directory._redis.delete(*keys)
    gone = command(calling, "replay", "--all")
    assert gone.returncode == 1 and "1 stayed" in gone.stderr and "is gone" in gone.stderr and waiting(calling) == 1
    assert "is gone" in command(calling, "show", letter["id"]).stdout


def test_letters_are_chosen_by_a_part_of_their_reason(calling):
    calling.start(1)
    fail(calling, "failing")
    with calling.app.producer_or_acquire() as producer:
        producer.publish(
            b"?", exchange=calling.topology.service.name, routing_key="actor.push", content_type="x/y",
            content_encoding="binary", headers={"task": "actor.push", "id": "of-no-type"},
        )  # fmt: skip
    until(lambda: waiting(calling) == 2)
    by_type = json.loads(command(calling, "list", "--reason", "CONTENT TYPE", "--json").stdout)["letters"]
    assert [one["service"] for one in by_type] == ["actor.push"]
    dropped = command(calling, "drop", "--reason", "content type", "--json", answer="y\n")
    assert json.loads(dropped.stdout)["dropped"] == 1 and "for good? [y/N]" in dropped.stderr
    again = command(calling, "replay", "--reason", "rejected", "--json")
    assert json.loads(again.stdout) == {"run": calling.topology.run, "sent_again": 1, "stayed": {}}
    until(lambda: [one["service"] for one in listed(calling)] == ["actor.push_badly"])  # its new letter


def test_a_letter_that_is_not_a_call_is_shown_without_being_unpickled(calling):
    calling.start(1)
    with calling.app.producer_or_acquire() as producer:
        producer.publish(
            b"\x80\x04nonsense", exchange=calling.topology.service.name, routing_key="actor.push",
            content_type="application/x-python-serialize", content_encoding="binary",
            headers={"task": "actor.push", "id": "\x1b[2Jnasty", "array": [1, {"a": 2}]},
        )  # fmt: skip
    until(lambda: waiting(calling) == 1)
    (letter,) = listed(calling)
    assert "content type is 'application/x-python-serialize'" in letter["reason"]
    shown = command(calling, "show", letter["id"]).stdout
    assert "unreadable" in shown and "\x1b" not in shown and "\x1b" not in command(calling, "list", "--each").stdout


def test_segments_of_a_learner_go_back_to_its_queue(calling):
    queue = calling.topology.learner_queue()
    letter = {"task": "learner.learn", "id": "segment-1"}
    with calling.app.producer_or_acquire() as producer:
        dead = calling.topology.dead_queue("learner")
        producer.publish("{}", exchange=dead.exchange.name, routing_key="learner.main", declare=[dead], headers=letter)
    refused = command(calling, "replay", "--all")
    assert refused.returncode == 1 and "no queue takes learner.main" in refused.stderr and waiting(calling) == 1
    with calling.app.connection_for_write() as connection:
        bound = queue(connection.default_channel)
        bound.declare()
        assert "1 sent again" in command(calling, "replay", "--all").stdout
        message = until(lambda: bound.get())
        assert message.headers["id"] == "segment-1" and waiting(calling) == 0
        bound.delete()


@pytest.mark.parametrize(("method", "copies"), [("basic_publish_confirm", 0), ("basic_ack", 1)])
def test_a_letter_outlives_a_kill_before_and_after_its_copy_is_confirmed(calling, method, copies):
    calling.start(1)
    fail(calling, "killed in between")
    started = [sys.executable, "-c", KILLED, method, "replay", "--all"]
    done = subprocess.run(started, cwd=ROOT, env=environment(calling), timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    until(lambda: waiting(calling) == 1 + copies)  # the copy ran and failed like the first
    assert {one["id"] for one in listed(calling)} == {listed(calling)[0]["id"]}


def test_kills_at_any_moment_lose_no_letter(calling):
    calling.start(1)
    keys = [f"key-{number}" for number in range(100)]
    connection = calling.app.connection_for_write()
    dead, service = calling.topology.dead_queue("actor"), "actor.push"
    with connection, connection.Producer() as producer:
        for key in keys:
            producer.publish(
                codec.encode(([key], {}, {})), exchange=dead.exchange.name, routing_key=service, declare=[dead],
                content_type=codec.CONTENT_TYPE, content_encoding="binary", headers={"task": service, "id": key},
            )  # fmt: skip
    until(lambda: waiting(calling) == len(keys))
    chance = random.Random(1)
    for _ in range(3):
        before = waiting(calling)
        started = [sys.executable, "-m", "workers.dead", "replay", "--all"]
        process = subprocess.Popen(started, cwd=ROOT, env=environment(calling), stdout=subprocess.DEVNULL)
        until(lambda before=before, process=process: process.poll() is not None or waiting(calling) < before)
        time.sleep(chance.uniform(0.0, 0.02))  # it has moved some letters
        process.kill()
        process.wait()

    def each_ran_or_is_left() -> bool:  # letters that a killed command held return soon
        left = [one["id"] for one in listed(calling)]
        return all(calling.ran(key) for key in keys if key not in left)

    until(each_ran_or_is_left)
    assert command(calling, "replay", "--all").returncode == 0
    until(lambda: all(calling.ran(key) for key in keys) and waiting(calling) == 0)


def test_each_mistake_is_one_line(calling):
    calling.start(1)
    fail(calling, "one")
    for arguments, said in (
        (["replay"], "replay: name services or ids, or a --reason, or give --all"),
        (["replay", "--reason", "green"], "'green' is in the reason of no dead letter"),
        (["show"], "show: name one id"),
        (
            ["replay", "actor.pish"],
            "actor.pish: is neither the id nor the service of a dead letter",
        ),
        (["drop", "--all", "actor.push"], "drop: name services or ids, or a --reason, or give --all"),
    ):
        done = command(calling, *arguments)
        assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    other = command(calling, "--run", f"{calling.topology.run}-not")
    assert (
        other.returncode == 0 and "has no queues of dead letters on this broker; check the run's name" in other.stdout
    )


def test_on_a_redis_broker_the_command_says_that_it_keeps_no_letters(embedded, run_name):
    done = command(
        SimpleNamespace(broker_url=embedded.broker_url, redis_url=embedded.redis_url, topology=Topology(run_name))
    )
    assert done.returncode == 0 and done.stdout.startswith("a Redis broker keeps no dead letters")
    assert len(done.stdout.splitlines()) == 1
