"""Tests of dead letters that are sent again with corrected arguments, on RabbitMQ."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import amqp
import numpy as np
import pytest
from support.calling import Calling
from support.letters import command, fail, listed, waiting
from support.waiting import until

from tasks import codec
from tasks.admin.dead_letters import DeadLetters

LONG = "x" * (2 << 20)
MOMENT = datetime(2026, 5, 4, tzinfo=UTC)


def shown(run: Calling, identity: str, *options: str) -> dict[str, Any]:
    done = command(run, "show", identity, "--json", *options)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def write(path: Path, told: dict[str, Any], **changed: Any) -> str:
    path.write_text(json.dumps({**told, **changed}))
    return str(path)


def die(run: Calling, service: str, body: bytes, content_type: str, **headers: Any) -> str:
    """Put a call among the dead letters of its role; return its id."""
    dead = run.topology.dead_queue(service.partition(".")[0])
    before, encoding = waiting(run), "utf-8" if content_type == "application/json" else "binary"
    with run.app.connection_for_write() as connection, connection.Producer() as producer:
        producer.publish(
            body, exchange=dead.exchange.name, routing_key=service, declare=[dead], content_type=content_type,
            content_encoding=encoding, headers={"task": service, "id": f"letter-{before}", **headers},
        )  # fmt: skip
    until(lambda: waiting(run) == before + 1)
    return f"letter-{before}"


def held(run: Calling) -> Any:
    """Return the only dead letter."""
    with DeadLetters(run.app, run.topology) as letters:
        letters.count()
        (letter,) = letters.each()
        return letter


@pytest.mark.parametrize("content_type", [codec.CONTENT_TYPE, "application/json"])
def test_a_corrected_letter_runs_with_its_new_arguments(calling, tmp_path, content_type):
    calling.start(1)
    call = (["mistyped"], {}, {})
    body = json.dumps(call).encode() if content_type == "application/json" else codec.encode(call)
    identity = die(calling, "actor.push", body, content_type)
    file = write(tmp_path / "letter.json", shown(calling, identity), args=["corrected"])
    done = command(calling, "replay", identity, "--from", file)
    assert done.returncode == 0 and done.stdout == "1 sent again\n", done.stderr
    until(lambda: calling.ran("corrected") == 1 and waiting(calling) == 0)
    assert calling.ran("mistyped") == 0


def test_a_correction_changes_nothing_but_the_arguments(calling, tmp_path):
    calling.start(1)
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    own = (["first", array, (b"bytes", MOMENT), {1: np.int16(3)}, array[:, :1]], {"left": True}, {"chord": None})
    identity = die(calling, "actor.push_badly", codec.encode(own), codec.CONTENT_TYPE, root_id="root", mark=[1, "a"])
    told = shown(calling, identity)
    first, second, third, _, _ = told["args"]
    args = [second, second, third, {"1": 4}, [[7], [8]], first]  # the array's text is copied to the front
    file = write(tmp_path / "letter.json", told, args=args, kwargs={"added": 1.5})
    done = command(calling, "replay", identity, "--from", file)
    assert done.returncode == 0, done.stderr
    until(lambda: waiting(calling) == 1 and held(calling).died_at != told["died_at"])  # it failed again
    letter = held(calling)
    positional, named, embed = letter.read()
    np.testing.assert_array_equal(positional[0], array)
    np.testing.assert_array_equal(positional[1], array)
    assert positional[2] == (b"bytes", MOMENT) and positional[5] == "first"
    assert list(positional[3]) == [1] and positional[3][1].dtype == np.int16 and positional[3][1] == 4
    assert positional[4].dtype == np.float32 and positional[4].tolist() == [[7.0], [8.0]]
    assert named == {"added": 1.5} and embed == {"chord": None}
    assert (letter.id, letter.service, letter.key) == (identity, "actor.push_badly", "actor.push_badly")
    assert letter.headers["root_id"] == "root" and letter.headers["mark"] == [1, "a"]


def test_a_long_letter_is_corrected_when_it_was_shown_whole(calling, tmp_path):
    calling.start(1)
    fail(calling, LONG)
    identity = listed(calling)[0]["id"]
    file = write(tmp_path / "cut.json", shown(calling, identity))
    refused = command(calling, "replay", identity, "--from", file)
    assert refused.returncode == 2 and "were shown cut; write it anew by `show ID --json --whole`" in refused.stderr
    assert waiting(calling) == 1
    file = write(tmp_path / "whole.json", shown(calling, identity, "--whole"), args=[LONG + "y"])
    assert command(calling, "replay", identity, "--from", file).returncode == 0
    until(lambda: waiting(calling) == 1 and list(held(calling).read()[0]) == [LONG + "y"])
    keys = calling.solver._directory._redis.keys(f"{calling.topology.key_prefix}claim:*")
    assert len(keys) == 1, "the first body went with the letter"


def test_a_file_that_does_not_fit_is_one_error_and_loses_nothing(calling, tmp_path):
    calling.start(1)
    fail(calling, "one", "two")
    identity, other = [one["id"] for one in listed(calling)]
    told, path = shown(calling, identity), tmp_path / "letter.json"
    arrays = codec.encode(([np.zeros(20), np.ones(20)], {}, {}))
    twins = shown(calling, die(calling, "actor.push", arrays, codec.CONTENT_TYPE))
    for which, content, said in (
        (identity, "{", f"--from {path}: is no JSON ("),
        (identity, "[" * 100_000, f"--from {path}: is no JSON ("),
        (identity, "[]", f"--from {path}: is no JSON object"),
        (identity, json.dumps({**told, "args": "one"}), "args: is 'one', not a list"),
        (identity, json.dumps({**told, "kwargs": []}), "kwargs: is [], not an object"),
        (identity, json.dumps({name: told[name] for name in told if name != "kwargs"}), "kwargs: is missing"),
        (identity, json.dumps({**told, "arg": []}), "arg: is not as `show` tells it"),
        (identity, json.dumps({**told, "headers": {}}), "headers: is not as `show` tells it"),
        (other, json.dumps(told), f"the file is of letter '{identity}', not of {other}"),
        (twins["id"], json.dumps({**twins, "args": ["new", *twins["args"]]}), "stands for 2 values of the letter"),
        (twins["id"], json.dumps({**twins, "args": twins["args"][:1]}), "stands for 2 values of the letter"),
        (twins["id"], json.dumps({**twins, "args": ["", 1]}), "args[0]: is '' in the place of 'ndarray float64"),
        (twins["id"], json.dumps({**twins, "args": [[["a"]], 1]}), "are no numbers for 'ndarray float64 (20,)'"),
    ):
        path.write_text(content)
        done = command(calling, "replay", which, "--from", str(path))
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert done.stdout == "" and waiting(calling) == 3
    for arguments in (
        ["replay", "--all"],
        ["replay", identity, other],
        ["drop", identity],
        ["replay", "actor.push_badly"],
    ):
        done = command(calling, *arguments, "--from", write(path, told))
        assert done.returncode == 2 and "--from: " in done.stderr and waiting(calling) == 3, done.stderr
    missing = command(calling, "replay", identity, "--from", str(tmp_path / "absent"))
    assert missing.returncode == 2 and f"--from {tmp_path}/absent: No such file" in missing.stderr
    assert [one["id"] for one in listed(calling)][:2] == [identity, other]


def test_a_corrected_letter_stays_until_its_copy_is_confirmed(calling, tmp_path, monkeypatch):
    identity = die(calling, "actor.push", codec.encode(([LONG], {}, {})), codec.CONTENT_TYPE)
    file = write(tmp_path / "letter.json", shown(calling, identity, "--whole"), args=["corrected"])
    refused = command(calling, "replay", identity, "--from", file)  # nobody has ever served it: no queue takes it
    assert refused.returncode == 1 and "no queue takes actor.push" in refused.stderr and waiting(calling) == 1
    assert held(calling).read()[0] == [LONG]
    calling.start(1)
    acknowledged = []
    monkeypatch.setattr(amqp.Channel, "basic_ack", lambda *_, **__: acknowledged.append(waiting(calling)))
    assert command(calling, "replay", identity, "--from", file).returncode == 0
    until(lambda: calling.ran("corrected") == 1)
    assert len(acknowledged) == 1 and waiting(calling) == 1, "the letter goes when it is acknowledged, after its copy"
