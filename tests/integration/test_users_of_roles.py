"""Tests of a user per role on real servers: actions beyond its rights are refused, and a league trains with all."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import amqp
import pytest
import redis
from support import brokers
from support.league_run import LeagueOfRun
from support.waiting import PATIENCE, until

from tasks.admin.cleanup import exchanges
from tasks.app import create_app
from tasks.rights import TABLE, user_name
from tasks.topology import WEIGHTS, Topology
from warren import redis_client
from workers.config.schema import Config
from workers.doctor.findings import Level
from workers.doctor.quick import of_broker, of_redis
from workers.rights import accounts, on_rabbitmq, on_redis
from workers.rights.accounts import Accounts
from workers.runtime.session import Session
from workers.servers import Servers

RUN = f"rights-{secrets.token_hex(4)}"
NAMES = Topology(RUN)
OTHER = Topology(f"{RUN}-other")
ROLES = ("actor", "evaluator", "league", "learner")


@pytest.fixture(scope="module")
def users(private_servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    """Yield users of the roles of RUN, whose queues exist."""
    node = brokers.node(private_servers)
    assert node is not None

    def control(words: list[str], told: str) -> tuple[int, str]:
        patience = brokers.CONTROL_PATIENCE
        done = node.control(["--quiet", *words], input=told, capture_output=True, text=True, timeout=patience)
        return done.returncode, done.stderr or done.stdout

    found = accounts.kept(tmp_path_factory.mktemp("rights") / "passwords", RUN, {})
    on_rabbitmq.ByControl(control).apply(on_rabbitmq.definitions(found, "/"))
    on_redis.apply(private_servers.redis_url, found)
    for names in (NAMES, OTHER):
        app = create_app(names, private_servers.broker_url, private_servers.redis_url)
        with app.connection_for_write() as connection:
            for entity in (*names.declared(), names.service_queue("league.request"), *exchanges(app, names)):
                entity(connection.default_channel).declare()
    yield found
    assert on_redis.remove(private_servers.redis_url, [*found.passwords, "warren.nobody"])[0] == len(TABLE)


@pytest.fixture
def channel_of(users: Accounts, private_servers: Servers) -> Iterator[Callable[[str], Any]]:
    """Yield a function that opens a channel of py-amqp as a role's user."""
    opened = []

    def connect(role: str) -> Any:
        broker_url, _ = users.urls(role, RUN, private_servers.broker_url, private_servers.redis_url)
        parts = urlsplit(broker_url)
        connection = amqp.Connection(
            f"{parts.hostname}:{parts.port}", userid=unquote(parts.username or ""), password=parts.password or "",
            virtual_host="/",
        )  # fmt: skip
        connection.connect()
        opened.append(connection)
        return connection.channel()

    yield connect
    for connection in opened:
        connection.collect()


def published(exchange: str, key: str = "") -> Callable[[Any], object]:
    def publish(channel: Any) -> None:
        channel.confirm_select()
        channel.basic_publish_confirm(amqp.Message(b"{}"), exchange, key)

    return publish


SEGMENTS, CALLS, WEIGHTS_OF_ALL = NAMES.learner_queue().name, "league.request", NAMES.event(WEIGHTS).name
REFUSED_BY_RABBITMQ: dict[str, tuple[str, Callable[[Any], object]]] = {
    "an actor reads segments": ("actor", lambda channel: channel.basic_get(SEGMENTS)),
    "an actor consumes segments": ("actor", lambda channel: channel.basic_consume(SEGMENTS)),
    "an actor empties a queue": ("actor", lambda channel: channel.queue_purge(SEGMENTS)),
    "an actor deletes a queue": ("actor", lambda channel: channel.queue_delete(SEGMENTS)),
    "an actor declares an exchange": ("actor", lambda channel: channel.exchange_declare(NAMES.learner.name, "direct")),
    "an actor deletes an exchange": ("actor", lambda channel: channel.exchange_delete(NAMES.learner.name)),
    "an actor fires weights": ("actor", published(WEIGHTS_OF_ALL)),
    "an actor tells workers to stop": ("actor", published(f"{NAMES.control}.pidbox")),
    "an actor publishes past exchanges": ("actor", published("", SEGMENTS)),
    "an actor sends to another run": ("actor", published(OTHER.learner.name, "learner.main")),
    "an env runner sends segments": ("env", published(NAMES.learner.name, "learner.main")),
    "a league worker reads segments": ("league", lambda channel: channel.basic_get(SEGMENTS)),
    "a league worker fires weights": ("league", published(WEIGHTS_OF_ALL)),
    "a learner reads the league's calls": (
        "learner", lambda channel: channel.basic_get(NAMES.service_queue(CALLS).name)
    ),
    "an evaluator fires weights": ("evaluator", published(WEIGHTS_OF_ALL)),
    "a watcher calls the league": ("watcher", published(NAMES.service.name, CALLS)),
    "a scaler reads messages": ("scaler", lambda channel: channel.basic_get(SEGMENTS)),
    "a launcher uses another run": ("launcher", lambda channel: channel.queue_purge(OTHER.learner_queue().name)),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED_BY_RABBITMQ)
def test_rabbitmq_refuses_a_role_access_to_objects_of_others(what: str, channel_of: Callable[[str], Any]) -> None:
    role, attempt = REFUSED_BY_RABBITMQ[what]
    with pytest.raises(amqp.AccessRefused):
        attempt(channel_of(role))


def test_a_role_may_do_what_is_refused_to_others(channel_of: Callable[[str], Any]) -> None:
    published(NAMES.learner.name, "learner.main")(channel_of("actor"))
    learner = channel_of("learner")
    assert learner.basic_get(SEGMENTS, no_ack=True).body == b"{}"
    published(WEIGHTS_OF_ALL)(learner)
    published(NAMES.service.name, CALLS)(channel_of("evaluator"))
    assert channel_of("league").basic_get(NAMES.service_queue(CALLS).name, no_ack=True)
    published(f"{NAMES.control}.pidbox")(channel_of("watcher"))


KEY = NAMES.key_prefix
REFUSED_BY_REDIS: dict[str, tuple[str, tuple[str, ...]]] = {
    "an actor changes the league": ("actor", ("HSET", f"{KEY}league:settings", "games", "1")),
    "an actor deletes a player": ("actor", ("DEL", f"{KEY}league:player:main")),
    "an actor changes the league by a script": ("actor", ("EVAL", "return 1", "1", f"{KEY}league:")),
    "an actor hides its key from a script": ("actor", ("EVAL", f"redis.call('DEL', '{KEY}league:elo')", "0")),
    "an actor replaces weights": ("actor", ("SET", f"{KEY}pool:data:main@1", "x")),
    "an actor takes the learner's lease": ("actor", ("SET", f"{KEY}lease:learner of player main", "x")),
    "an actor ends the run": ("actor", ("SET", f"closed-{KEY}", "")),
    "an actor reads another run": ("actor", ("GET", f"{OTHER.key_prefix}settings")),
    "an actor lists keys": ("actor", ("SCAN", "0")),
    "an actor listens to another run": ("actor", ("SUBSCRIBE", f"{OTHER.key_prefix}celery-task-meta-1")),
    "an actor hears of all keys that change": ("actor", ("CLIENT", "TRACKING", "ON", "BCAST")),
    "an actor makes users": ("actor", ("ACL", "SETUSER", "me")),
    "an env runner counts segments": ("env", ("DEL", f"{KEY}ledger:totals")),
    "a learner changes the league": ("learner", ("DEL", f"{KEY}league:settings")),
    "an evaluator changes the league": ("evaluator", ("HSET", f"{KEY}league:settings", "games", "1")),
    "an evaluator deletes a player": ("evaluator", ("DEL", f"{KEY}league:player:main")),
    "an evaluator changes the league by a script": (
        "evaluator",
        ("EVAL", f"return redis.call('DEL', '{KEY}league:elo')", "1", f"{KEY}league:"),
    ),
    "a scaler reads": ("scaler", ("GET", f"{KEY}settings")),
    "a watcher writes": ("watcher", ("DEL", f"{KEY}pool:newest")),
    "a launcher flushes the database": ("launcher", ("FLUSHDB",)),
    "a launcher reads what is of no run": ("launcher", ("GET", "of-somebody-else")),
}


@pytest.mark.parametrize("what", REFUSED_BY_REDIS)
def test_redis_refuses_a_role_access_to_keys_of_others(what: str, users: Accounts, private_servers: Servers) -> None:
    role, command = REFUSED_BY_REDIS[what]
    _, url = users.urls(role, RUN, private_servers.broker_url, private_servers.redis_url)
    with redis_client.connect(url) as client, pytest.raises(redis.ResponseError, match=r"(?i)permission|can't access"):
        client.execute_command(*command)


@pytest.mark.parametrize("role", [role for role in TABLE if role != "scaler"])
def test_the_doctor_finds_that_a_role_has_what_it_needs(role: str, users: Accounts, private_servers: Servers) -> None:
    broker_url, redis_url = users.urls(role, RUN, private_servers.broker_url, private_servers.redis_url)
    found, _ = of_broker(broker_url, NAMES, calls=True)
    found += of_redis(redis_url, RUN, league=True, private=True)
    assert [one for one in found if one.level is Level.error] == []
    (permissions,) = (one for one in found if one.check == "permissions")
    assert permissions.level is Level.ok and role in permissions.found


def test_an_administrators_learner_declares_exchanges_for_users_of_roles(
    users: Accounts, private_servers: Servers, run_name: str
) -> None:
    config = Config(run=run_name, trial="t")
    session = Session(config, private_servers.broker_url, private_servers.redis_url)
    session.declare()
    with session.app.connection_for_write() as connection:
        for exchange in exchanges(session.app, session.topology):
            exchange(connection.channel()).declare(passive=True)


def test_a_worker_waits_for_exchanges_that_a_restart_of_rabbitmq_has_removed(
    users: Accounts, private_servers: Servers, channel_of: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as ending:

        def node(role: str) -> Any:
            urls = users.urls(role, RUN, private_servers.broker_url, private_servers.redis_url)
            app = create_app(NAMES, *urls)
            channel = ending.enter_context(app.connection_for_read()).channel()
            return app.control.mailbox.Node(f"{role}-0", channel=channel)

        actor, learner = node("actor"), node("learner")
        removed = (actor.mailbox.exchange, actor.mailbox.reply_exchange)
        for exchange in removed:
            channel_of("launcher").exchange_delete(exchange.name)
        listening = threading.Thread(target=actor.listen)
        listening.start()
        until(lambda: f"to declare {removed[0].name}" in caplog.text)
        assert listening.is_alive()
        learner.listen()
        listening.join(PATIENCE)
        assert not listening.is_alive()


def test_a_league_trains_with_a_user_for_each_role(users: Accounts, private_servers: Servers, tmp_path: Path) -> None:
    admin = redis_client.connect(private_servers.redis_url)
    admin.acl_log_reset()
    broker_url, redis_url = users.urls("launcher", RUN, private_servers.broker_url, private_servers.redis_url)
    given = {"environment": {accounts.VARIABLE: str(users.path)}, "broker_url": broker_url, "redis_url": redis_url}
    with LeagueOfRun(tmp_path, f"run={RUN}", "actors=1", "broker=external", **given) as league:
        everybody = {user_name(role, RUN) for role in ROLES}
        league.until(lambda: everybody <= {client["user"] for client in admin.client_list()} and league.scores())
        refused = {(entry["username"], entry["object"]) for entry in admin.acl_log(128)}
    assert not [one for one in refused if one[0] in users.passwords]
    assert league.process.poll() is not None and league.tracebacks() == {}
    until(lambda: not admin.exists(f"{KEY}leases"))


def test_every_role_has_a_user_on_both_servers(users: Accounts) -> None:
    assert list(users.passwords) == [user_name(role, RUN) for role in TABLE]
    wanted = on_rabbitmq.definitions(users, "/")
    assert [one["name"] for one in wanted["users"]] == list(on_redis.acl(users)) == list(users.passwords)
    told = str(wanted) + str(on_redis.lines(users))
    assert not [user for user, password in users.passwords.items() if password in told]
