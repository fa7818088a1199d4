"""Tests of roles' passwords: in a file that only its owner reads, given to each process by role, set on RabbitMQ."""

from __future__ import annotations

import base64
import fnmatch
import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks import rights
from warren.errors import BrokerError, ConfigurationError
from workers.launch.processes.logins import Logins
from workers.launch.spec import ProcessSpec, ServersSpec
from workers.rights import accounts, keys, on_rabbitmq, on_redis
from workers.rights.__main__ import main
from workers.servers import Servers

BROKER, REDIS = "amqp://root:secret@box:5672//", "redis://:secret@box:6379/0"
ACTOR = ProcessSpec("actor", range(2), ("-m", "workers.actor"), rights="actor")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "passwords"


def test_passwords_are_random_and_only_their_owner_reads_them(path: Path) -> None:
    found = accounts.kept(path, None, {})
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(found.passwords) == [f"warren.{role}" for role in rights.TABLE]
    assert len(set(found.passwords.values())) == len(rights.TABLE)
    assert accounts.kept(path, None, {}).passwords == accounts.read(path).passwords == found.passwords


def test_a_password_of_the_environment_is_taken(path: Path) -> None:
    found = accounts.kept(path, "kuhn", {"WARREN_PASSWORD_ACTOR": "given"})
    assert found.passwords["warren.kuhn.actor"] == "given" != found.passwords["warren.kuhn.learner"]
    with pytest.raises(ConfigurationError, match="WARREN_PASSWORD_ENV: a password has no spaces"):
        accounts.kept(path, "kuhn", {"WARREN_PASSWORD_ENV": "two words"})


def test_a_file_that_others_may_read_is_refused(path: Path) -> None:
    accounts.kept(path, None, {})
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="other users of this machine may read these passwords; chmod 600"):
        accounts.read(path)


@pytest.mark.parametrize("text", ["warren.actor", "warren.actor  x", "\0"])
def test_a_damaged_file_is_named_with_its_line(path: Path, text: str) -> None:
    path.write_text(f"warren.env x\n{text}\n")
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="line 2 is not a user and a password"):
        accounts.read(path)


@pytest.mark.parametrize(
    "url, wanted",
    [
        (BROKER, "amqp://warren.actor:p%2Fw@box:5672//"),
        ("amqps://box/%2F?ssl_ca_certs=ca", "amqps://warren.actor:p%2Fw@box/%2F?ssl_ca_certs=ca"),
        ("amqp://a:b@one//;amqp://a:b@two//", "amqp://warren.actor:p%2Fw@one//;amqp://warren.actor:p%2Fw@two//"),
        ("sentinel://one:1,two:2/S/0", "sentinel://warren.actor:p%2Fw@one:1,two:2/S/0"),
        ("AMQP://root:secret@box//", "AMQP://warren.actor:p%2Fw@box//"),
        ("amqp://root:se@cret@box/a@b", "amqp://warren.actor:p%2Fw@box/a@b"),
    ],
)
def test_a_login_replaces_that_of_a_url(url: str, wanted: str) -> None:
    assert accounts.with_login(url, "warren.actor", "p/w") == wanted


@pytest.mark.parametrize("url", ["root:secret@box", "amqp://root:se;cret@box//", ""])
def test_a_url_that_would_keep_its_login_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="scheme://user:password@host") as refused:
        accounts.with_login(url, "warren.actor", "pw")
    assert "cret" not in str(refused.value) and "pw" not in str(refused.value)


@pytest.mark.parametrize("name", ["missing/passwords", "file/passwords"])
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=f"--passwords: {tmp_path / name} cannot be written: No"):
        accounts.kept(tmp_path / name, None, {})


def test_a_process_gets_only_the_login_of_its_role(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = accounts.kept(path, None, {})
    monkeypatch.setenv(accounts.VARIABLE, str(path))
    logins = Logins("kuhn", Servers(BROKER, REDIS, "rabbitmq", "", path.parent))
    of_all = {"WARREN_PASSWORDS": str(path), "WARREN_PASSWORD_LEARNER": "x", "WARREN_PASSWORD": "x", "HOME": "/"}
    found = logins.of(ACTOR, {**of_all, "WARREN_BROKER_URL": BROKER, "WARREN_REDIS_URL_FILE": "/run/url"})
    password = known.passwords["warren.actor"]
    assert found == {
        "HOME": "/",
        "WARREN_BROKER_URL": f"amqp://warren.actor:{password}@box:5672//",
        "WARREN_REDIS_URL": f"redis://warren.actor:{password}@box:6379/0",
    }


def test_without_a_file_every_process_has_the_launchers_login(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(accounts.VARIABLE, raising=False)
    logins = Logins("kuhn", Servers(BROKER, REDIS, "rabbitmq", "", path.parent))
    logins.check([ACTOR], ServersSpec())
    assert logins.of(ACTOR, {"WARREN_BROKER_URL": BROKER}) == {"WARREN_BROKER_URL": BROKER}


def test_urls_in_the_settings_are_refused_beside_logins(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts.kept(path, None, {})
    monkeypatch.setenv(accounts.VARIABLE, str(path))
    logins = Logins("kuhn", Servers(BROKER, REDIS, "rabbitmq", "", path.parent))
    with pytest.raises(ConfigurationError, match="every process reads them"):
        logins.check([ACTOR], ServersSpec(broker_url=BROKER))


@pytest.fixture
def management() -> Iterator[tuple[str, list[tuple[str, str, Any]]]]:
    """Yield the URL of an HTTP server that knows the administrator root:secret, and the requests to it."""
    asked: list[tuple[str, str, Any]] = []
    login = "Basic " + base64.b64encode(b"root:secret").decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            known = self.headers["Authorization"] == login
            asked.append((self.command, self.path, json.loads(body) if body else None))
            self.send_response((404 if self.path.endswith("warren.env") else 204) if known else 401)
            self.end_headers()

        do_DELETE = do_POST

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()


def test_the_management_api_is_asked_to_import_and_to_delete(management: Any, path: Path) -> None:
    url, asked = management
    wanted = on_rabbitmq.definitions(accounts.kept(path, None, {}), "/")
    broker = on_rabbitmq.ByManagement(BROKER, url)
    broker.apply(wanted)
    assert broker.remove(["warren.actor", "warren.env"]) == 1
    assert asked == [
        ("POST", "/api/definitions", wanted),
        ("DELETE", "/api/users/warren.actor", None),
        ("DELETE", "/api/users/warren.env", None),
    ]
    with pytest.raises(BrokerError, match="refuses this user, which needs the tag administrator"):
        on_rabbitmq.ByManagement("amqp://box//", url).apply(wanted)


def test_a_port_that_is_not_http_is_one_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(1000)
            connection.sendall(b"AMQP\0\0\x09\x01\r\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        for port in (listener.getsockname()[1], "bad"):
            with pytest.raises(BrokerError, match="management API does not answer at"):
                on_rabbitmq.ByManagement(BROKER, f"http://127.0.0.1:{port}").apply({})


def test_a_command_that_is_no_rabbitmqctl_is_one_error() -> None:
    with pytest.raises(ConfigurationError, match="close its quotation"):
        on_rabbitmq.control_by("docker 'exec")
    with pytest.raises(ConfigurationError, match="--rabbitmqctl: 'no-such-command x' cannot be run"):
        on_rabbitmq.control_by("no-such-command x")(["delete_user"], "")
    with pytest.raises(BrokerError, match=r"'sleep' took over 0\.05 s"):
        on_rabbitmq.control_by("sleep", patience=0.05)(["60"], "")


def test_removal_by_rabbitmqctl_counts_the_users_that_existed() -> None:
    known = on_rabbitmq.ByControl(lambda words, _: (0, "") if words[1] == "warren.env" else (67, "no_such_user"))
    assert known.remove(["warren.actor", "warren.env"]) == 1


@pytest.mark.parametrize("verb", ["apply", "acl"])
def test_users_of_redis_need_the_name_of_a_run(verb: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--passwords", str(path), verb]) == 2
    assert f"--run: not given, and users of Redis are of one run; `--run NAME {verb}`" in capsys.readouterr().err
    assert not path.exists()
    with pytest.raises(ConfigurationError, match=r"warren\.actor: users of Redis are of one run; give --run NAME"):
        on_redis.acl(accounts.kept(path, None, {}))


@pytest.mark.parametrize("verb", ["apply", "remove", "acl", "definitions"])
def test_a_role_is_refused_by_verbs_for_all_roles(verb: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--passwords", str(path), "--run", "kuhn", verb, "actor"]) == 2
    assert capsys.readouterr().err == f"error: {verb}: it is for all roles at once; leave 'actor' out\n"
    assert not path.exists()


@pytest.mark.parametrize("role", keys.TABLE)
def test_only_the_league_and_the_launcher_may_write_the_leagues_keys(role: str) -> None:
    rules = keys.TABLE[role].rules("kuhn")
    written = [rule[1:] for rule in rules if rule.startswith("~")]
    key = "warren.kuhn:league:events"
    assert any(fnmatch.fnmatchcase(key, one) for one in written) == (role in ("league", "launcher"))
    assert "-client|tracking" in rules


def test_the_command_prints_rules_without_passwords(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--passwords", str(path), "--run", "kuhn", "acl"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("user warren.kuhn.actor reset on #") and "~warren.kuhn:ledger:*" in lines[0]
    assert main(["--passwords", str(path), "definitions"]) == 0
    told = capsys.readouterr().out
    assert len(json.loads(told)["permissions"]) == len(rights.TABLE)
    assert not [password for password in accounts.read(path).passwords.values() if password in told]
    assert main(["show", "actr"]) == 2
    assert "did you mean actor" in capsys.readouterr().err
