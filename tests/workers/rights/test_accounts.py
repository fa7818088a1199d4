"""Passwords of roles: kept in a file for its owner alone, handed to each process by its role, applied to RabbitMQ."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks import rights
from warren.errors import BrokerError, ConfigurationError
from workers.launch.processes.logins import Logins
from workers.launch.spec import ProcessSpec, ServersSpec
from workers.rights import accounts, on_rabbitmq
from workers.rights.__main__ import main
from workers.servers import Servers

BROKER, REDIS = "amqp://root:secret@box:5672//", "redis://:secret@box:6379/0"
ACTOR = ProcessSpec("actor", range(2), ("-m", "workers.actor"), rights="actor")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "passwords"


def test_passwords_are_random_and_for_their_owner_alone(path: Path) -> None:
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
    ],
)
def test_a_login_takes_the_place_of_a_urls_own(url: str, wanted: str) -> None:
    assert accounts.with_login(url, "warren.actor", "p/w") == wanted


def test_a_process_is_handed_the_login_of_its_role_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    """The URL of an HTTP server that knows the administrator root:secret, and what it was asked."""
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
    broker.remove(["warren.actor", "warren.env"])
    assert asked == [
        ("POST", "/api/definitions", wanted),
        ("DELETE", "/api/users/warren.actor", None),
        ("DELETE", "/api/users/warren.env", None),
    ]
    with pytest.raises(BrokerError, match="refuses this user, who needs the tag administrator"):
        on_rabbitmq.ByManagement("amqp://box//", url).apply(wanted)


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
