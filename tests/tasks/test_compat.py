"""Tests that private names of other packages that Warren uses exist and behave as expected."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import secrets
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import amqp
import pytest
import redis
from amqp.transport import TCPTransport
from celery import Celery
from celery.app.control import Control
from celery.apps import worker as worker_app
from celery.concurrency.base import BasePool, apply_target
from celery.worker import loops
from celery.worker import state as worker_state
from celery.worker.consumer import Consumer as CeleryConsumer
from celery.worker.request import Request as CeleryRequest
from kombu import Connection
from kombu.message import Message
from kombu.pidbox import Mailbox, Node
from support.python_source import nodes
from support.waiting import PATIENCE, until

from tasks import compat
from tasks.app import create_app
from tasks.topology import Topology

# kombu


def test_kombu_a_scheme_is_opened_by_the_transport_that_was_named_for_it():
    compat.use_transport("amqp-of-a-test", "kombu.transport.memory:Transport")
    assert type(Connection("amqp-of-a-test://").transport).__module__ == "kombu.transport.memory"


# celery


def test_celery_output_of_a_stopping_worker_is_logged(monkeypatch):
    assert "safe_say(f'worker: {how} shutdown (MainProcess)'" in inspect.getsource(worker_app)
    monkeypatch.setattr(worker_app, "safe_say", worker_app.safe_say)
    said: list[str] = []
    compat.log_shutdowns(said.append)
    worker_app.safe_say("worker: Warm shutdown (MainProcess)", sys.__stdout__)
    assert said == ["worker: Warm shutdown (MainProcess)"]


# py-amqp


@pytest.fixture
def transport() -> Any:
    """Return a transport of py-amqp that is connected to nothing."""
    transport = TCPTransport("127.0.0.1:1")
    transport.sock = object()
    return transport


def test_amqp_a_transport_keeps_surplus_bytes(transport):
    transport._quick_recv = lambda size: b"header and more"
    assert transport._read(6) == b"header"
    connection = SimpleNamespace(transport=transport)
    assert compat.take_over(connection, lambda: None, lambda data: None) == (transport.sock, b" and more")


def test_amqp_a_connection_reads_frames_by_its_transports_read_frame(transport):
    connection = amqp.Connection()
    connection.transport = transport
    handled: list[Any] = []
    connection.on_inbound_frame = handled.append
    compat.take_over(connection, lambda *_: (1, 0, b"frame"), lambda data: None)
    connection.blocking_read()
    assert handled == [(1, 0, b"frame")]


def test_amqp_a_connection_writes_by_its_transports_underscore_write(transport):
    connection = amqp.Connection()
    connection.transport = transport
    connection.frame_max = 4096
    connection.frame_writer = connection.frame_writer_cls(connection, transport)  # made before `take_over`
    written: list[bytes] = []
    compat.take_over(connection, lambda: None, lambda data: written.append(bytes(data)))
    connection.send_heartbeat()
    assert written == [b"\x08\x00\x00\x00\x00\x00\x00\xce"]


def test_amqp_on_inbound_frame_takes_type_channel_and_payload():
    connection, received = amqp.Connection(), list[Any]()
    connection.on_inbound_frame = connection.frame_handler_cls(connection, lambda *told: received.append(told))
    compat.hand_frame(connection, (1, 3, b"\x00\x14\x00\x28rest"))
    assert received == [(3, (20, 40), b"\x00\x14\x00\x28rest", None)]


def test_amqp_collect_closes_the_socket_and_may_be_called_again(transport):
    closed: list[str] = []
    transport.sock = SimpleNamespace(shutdown=lambda how: closed.append("shut"), close=lambda: closed.append("closed"))
    connection = amqp.Connection()
    connection.transport = transport
    compat.drop(connection)
    compat.drop(connection)
    assert closed == ["shut", "closed"]


def test_amqp_consuming_needs_no_callback():
    parameters = inspect.signature(amqp.Channel.basic_consume).parameters
    assert parameters["callback"].default is None


# kombu


def test_kombu_a_redis_channel_tells_the_length_of_a_queue(embedded):
    topology = Topology(f"compat-{secrets.token_hex(4)}")
    app = create_app(topology, embedded.broker_url, embedded.redis_url)
    with app.connection_for_write() as connection:
        assert compat.redis_queue_length(connection.default_channel, topology.actor_queue().name) == 0


def test_kombu_a_redis_connection_lends_its_pool(embedded):
    topology = Topology(f"compat-{secrets.token_hex(4)}")
    app = create_app(topology, embedded.broker_url, embedded.redis_url)
    with app.connection_for_write() as connection:
        assert compat.redis_of(connection).ping()


# celery


class Prepared(compat.App):
    def prepare_backend(self, backend: Any) -> None:
        compat.retry_redis(backend, "patient")


def test_celery_an_app_takes_nothing_from_variables_of_another_app(monkeypatch):
    for name in ("BROKER_URL", "BROKER_READ_URL", "BROKER_WRITE_URL", "RESULT_BACKEND"):
        monkeypatch.setenv(f"CELERY_{name}", "redis://other.invalid:1/0")
    monkeypatch.setenv("CELERY_CONFIG_MODULE", "another_programs_settings")
    monkeypatch.setenv("CELERY_LOADER", "another_programs_loader")
    app = create_app(Topology("compat"), "amqp://here:2//", "redis://here:3/0")
    assert (
        app.connection_for_write().hostname == app.connection_for_read().hostname == app.connection().hostname == "here"
    )
    assert app.backend.connparams["host"] == "here"


def test_celery_new_result_backends_pass_get_backend_and_connect_with_connparams():
    app = Prepared("compat", broker="memory://", backend="redis://127.0.0.1:1/0", set_as_current=False)
    assert app.backend.connparams["retry"] == "patient"
    client = app.backend.client
    assert client.connection_pool.connection_kwargs["retry"] == "patient"
    subscriptions = client.pubsub().connection_pool
    assert subscriptions.connection_kwargs["retry"].get_retries() == 0
    assert client.connection_pool.connection_kwargs["retry"] == "patient", (
        "subscriptions changed the pool of the client"
    )


class Waiting:
    """A wait for two results. `store` stores the first in Redis; with `kill` it breaks all subscriptions before."""

    def __init__(self, servers: Any) -> None:
        self.app = create_app(Topology(f"compat-{secrets.token_hex(4)}"), servers.broker_url, servers.redis_url)
        self.backend, self.heard = self.app.backend, []
        self.redis = redis.Redis.from_url(servers.redis_url)
        self.results: list[Any] = []
        for name in ("first", "second"):
            self.waits_for(name)

    def waits_for(self, name: str) -> None:
        self.results.append(self.app.AsyncResult(name))
        self.results[-1].then(lambda ready: self.heard.append(ready.result))  # subscribes

    def store(self, *, kill: bool) -> None:
        result = self.backend.encode_result("done", "SUCCESS")
        meta = {"task_id": "first", "status": "SUCCESS", "result": result, "traceback": None, "children": []}
        with self.redis.pipeline(transaction=True) as pipe:
            if kill:
                pipe.client_kill_filter(_type="pubsub")
            pipe.set(self.backend.get_key_for_task("first"), self.backend.encode(meta))
            assert all(pipe.execute())

    def hears(self) -> None:
        until(lambda: self.heard or self.backend.result_consumer.drain_events(timeout=0.1), "the result")
        assert self.heard == ["done"]


@pytest.fixture
def waiting(embedded) -> Iterator[Waiting]:
    waiting = Waiting(embedded)
    yield waiting
    for result in waiting.results:
        compat.give_up_result(waiting.backend, result)


def test_celery_a_result_stored_during_a_broken_subscription_is_received(waiting):
    waiting.store(kill=True)
    waiting.hears()


def test_celery_a_result_is_received_even_if_the_next_subscription_breaks(waiting):
    waiting.store(kill=True)
    for name in ("third", "fourth", "fifth"):  # the first command writes to a closed socket, which raises no error
        waiting.waits_for(name)
    waiting.hears()


def test_celery_a_result_between_a_read_and_a_new_subscription_is_received(waiting, monkeypatch):
    client = waiting.backend.client
    look = client.mget

    def look_too_early(*keys: Any) -> Any:
        monkeypatch.undo()
        found = look(*keys)
        waiting.store(kill=False)
        return found

    monkeypatch.setattr(client, "mget", look_too_early)
    waiting.redis.client_kill_filter(_type="pubsub")
    waiting.hears()


class Late:
    """A socket to Redis whose writes arrive only after the next read of a result."""

    def __init__(self, waiting: Waiting) -> None:
        self.waiting, self.looked = waiting, threading.Event()
        self.sending: list[threading.Thread] = []
        client, consumer = waiting.backend.client, waiting.backend.result_consumer
        self.get, self.connection = client.get, consumer._pubsub.connection
        self.send = self.connection.send_packed_command
        client.get, self.connection.send_packed_command = self.look, self.send_late

    def look(self, key: Any) -> Any:
        found = self.get(key)
        if not self.looked.is_set():
            self.waiting.store(kill=False)
            self.waiting.redis.publish(self.waiting.backend.get_key_for_task("first"), self.get(key))
            self.looked.set()
        return found

    def send_late(self, command: Any, **options: Any) -> None:
        """Send a command, in order, after a result was read, or after a second at the latest."""
        before = self.sending[-1:]

        def send() -> None:
            for thread in before:
                thread.join()
            self.looked.wait(1.0)
            self.send(command, **options)

        self.sending.append(threading.Thread(target=send, daemon=True))
        self.sending[-1].start()


def test_celery_a_result_between_a_read_and_a_late_subscription_is_received(waiting):
    compat.give_up_result(waiting.backend, waiting.results[0])
    Late(waiting)
    assert waiting.app.AsyncResult("first").get(timeout=PATIENCE) == "done"


def test_celery_a_redis_backend_forgets_results_by_on_result_fulfilled():
    app = Prepared("compat", broker="memory://", backend="redis://127.0.0.1:1/0", set_as_current=False)
    given_up: list[str] = []
    app.backend.result_consumer = SimpleNamespace(cancel_for=given_up.append)
    compat.give_up_result(app.backend, SimpleNamespace(id="result-1"))
    assert given_up == ["result-1"]


class Named(compat.Pool):
    def info_besides(self) -> dict[str, Any]:
        return {"threads": 1}


def test_celery_a_pool_tells_its_info_by_get_info_and_its_end_by_state():
    pool = Named(1)
    assert pool.info["threads"] == 1 and "implementation" in pool.info
    assert not pool.terminated
    pool.terminate()
    assert pool.terminated


def test_celery_request_classes_tracers_and_links_are_made_as_by_a_worker():
    app = Celery("compat", broker="memory://", set_as_current=False)

    @app.task(name="compat.double")
    def double(number: int) -> int:
        return 2 * number

    app.finalize()
    consumer = SimpleNamespace(pool=SimpleNamespace(apply_async=None), hostname="here", event_dispatcher=None)
    made = compat.request_class(double, consumer, app)
    message = Message(
        body=json.dumps([[2], {}, {"chord": "its chord"}]),
        headers={"task": "compat.double", "id": "1"},
        content_type="application/json",
        content_encoding="utf-8",
        delivery_info={},
    )
    request = made(message, app=app, task=double, headers=message.headers, body=message.body, decoded=False)
    assert request.args == [2] and compat.links_of(request) == {"chord": "its chord"}
    result, failure, *_ = compat.new_tracer(app, double, "here")("1", [2], {}, {"id": "1", "ignore_result": True})
    assert (result, failure) == (4, None)
    double.__trace__ = "the worker's"
    assert compat.tracer_of(double) == "the worker's"


def test_python_tells_what_a_thread_runs():
    held = threading.Event()
    thread = threading.Thread(target=held.wait)
    thread.start()
    try:
        until(lambda: "in wait" in compat.stack_of(thread.ident), "the thread's wait")
    finally:
        held.set()
        thread.join()
    until(lambda: compat.stack_of(thread.ident) == "", "the end of the thread's stack")


HOOKS = [
    *((CeleryConsumer, name) for name in ("create_task_handler", "on_decode_error")),
    *((CeleryRequest, name) for name in ("on_failure", "acknowledge", "reject", "on_accepted", "on_success")),
    *((BasePool, name) for name in ("on_start", "on_apply", "on_stop", "on_terminate", "terminate_job")),
    *((BasePool, name) for name in ("register_with_event_loop", "body_can_be_buffer", "signal_safe")),
    *((Mailbox, name) for name in ("get_queue", "get_reply_queue", "exchange_fmt", "reply_exchange_fmt", "node_cls")),
    *((Node, name) for name in ("handle_message", "dispatch_from_message", "listen", "channel")),
    *((worker_state, name) for name in ("revoked", "total_count", "should_stop", "should_terminate")),
    (Control, "Mailbox"),
]


@pytest.mark.parametrize(("owner", "name"), HOOKS, ids=[f"{owner.__name__}.{name}" for owner, name in HOOKS])
def test_overridden_and_set_names_still_exist(owner, name):
    assert hasattr(owner, name), f"{owner.__name__} has no {name} any more, so the override is never called"


# Public but undocumented names that modules other than compat.py import: "module:name" -> attributes that they use or
# override, or parameters that they pass, apart from those in HOOKS.
UNDOCUMENTED: dict[str, tuple[str, ...]] = {
    "billiard.einfo:ExceptionInfo": ("exc_info",),
    "celery.app.routes:Router": ("expand_destination", "routes", "queues", "app"),
    "celery.concurrency.base:apply_target": ("target", "args", "kwargs", "callback", "accept_callback", "propagate"),
    "celery.events.receiver:EventReceiver": ("capture", "queue_prefix"),
    "celery.worker:loops": ("asynloop", "synloop"),
    "celery.worker:state": (
        "maybe_shutdown",
        "revoked",
        "revoked_stamps",
        "should_stop",
        "should_terminate",
        "total_count",
    ),
    "celery.worker.consumer:Consumer": ("Blueprint", "loop_args"),
    "celery.worker.request:Request": ("on_failure",),
    "celery.worker.state:task_ready": ("request",),
    "celery.worker.state:task_reserved": ("request",),
    "kombu.pidbox:Mailbox": ("node_cls", "exchange_fmt", "reply_exchange_fmt"),
    "kombu.pidbox:Node": ("handle_message", "dispatch_from_message", "listen", "channel"),
    "kombu.transport.pyamqp:Channel": ("exchange_declare", "queue_declare", "queue_bind"),
    "kombu.transport.pyamqp:Connection": ("userid", "Channel"),
    "kombu.transport.pyamqp:SSLTransport": ("establish_connection", "client", "Connection"),
    "kombu.transport.pyamqp:Transport": ("establish_connection", "Connection"),
}
DOCUMENTED = {
    *("amqp", "amqp.exceptions", "celery", "celery.app.amqp", "celery.app.control", "celery.app.events"),
    *("celery.app.task", "celery.exceptions", "celery.utils.log", "celery.worker.control", "kombu"),
    *("kombu.connection", "kombu.exceptions", "kombu.message", "kombu.mixins"),
}
ROOT = Path(compat.__file__).parents[1]
SOURCES = [path for path in [*ROOT.glob("tasks/**/*.py"), *ROOT.glob("workers/**/*.py")] if path.name != "compat.py"]


@pytest.mark.parametrize("part", UNDOCUMENTED)
def test_undocumented_imports_have_the_attributes_and_parameters_in_use(part):
    module, _, name = part.partition(":")
    found = getattr(importlib.import_module(module), name)
    parameters = inspect.signature(found).parameters if callable(found) else {}
    for used in UNDOCUMENTED[part]:
        assert hasattr(found, used) or used in parameters, f"{part} has no {used} any more"


def test_celery_a_workers_loops_take_the_arguments_of_its_consumer():
    taken = ["obj", "connection", "consumer", "blueprint", "hub", "qos", "heartbeat", "clock", "hbrate"]
    assert list(inspect.signature(loops.asynloop).parameters) == taken
    assert list(inspect.signature(loops.synloop).parameters)[: len(taken)] == taken


def test_celery_apply_target_reports_acceptance_and_result_and_propagates():
    told: list[Any] = []
    apply_target(
        lambda one: one + 1, (1,), {}, callback=told.append, accept_callback=lambda *_: told.append("accepted")
    )
    assert told == ["accepted", 2]
    with pytest.raises(SystemExit):
        apply_target(sys.exit, (), {}, callback=told.append, propagate=(SystemExit,))


def test_imports_of_other_modules_are_documented_or_in_the_table():
    unknown = []
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom):
                where = node.module or ""
                found = [(where, f"{where}:{alias.name}") for alias in node.names]
            elif isinstance(node, ast.Import):
                found = [(alias.name, alias.name) for alias in node.names]
            else:
                continue
            for module, part in found:
                foreign = module.partition(".")[0] in ("amqp", "billiard", "celery", "kombu", "vine")
                if foreign and part not in UNDOCUMENTED and (module not in DOCUMENTED or part == "celery:worker"):
                    unknown.append(f"{path.relative_to(ROOT)}: {part}")
    assert unknown == []


def touched_of_others(nodes: Iterable[ast.AST]) -> list[ast.Attribute]:
    """Return the uses of private attributes on anything but self, cls and super()."""
    names = (node for node in nodes if isinstance(node, ast.Attribute))
    private = (one for one in names if one.attr.startswith("_") and not one.attr.endswith("__"))
    return [one for one in private if ast.unparse(one.value) not in ("self", "cls", "super()")]


def test_a_private_name_of_another_object_is_found_if_own_objects_have_it() -> None:
    source = "class Own:\n    def make(self, other):\n        self._lock = other._lock\n        super()._lock\n"
    assert [ast.unparse(one) for one in touched_of_others(ast.walk(ast.parse(source)))] == ["other._lock"]


# Private attributes, as written, that modules other than compat use: of objects of the same file's classes, ...
VIEWED = ("_bridge_here", "_client", "_find", "_find_in", "_known", "_make_room", "_task")
OF_THE_SAME_FILE = {
    "tasks/client/forms.py": {"solver._middleware", *(f"self._solver.{name}" for name in VIEWED)},
    "tasks/worker/hooks.py": {"hooks._around", "hooks._dropped"},
    "workers/learning/metrics.py": {"progress._resumed_at"},
    "workers/launch/folder.py": {"folder._reserve"},
    "workers/launch/hosts/membership.py": {"presence._check"},
}
# ... and of others.
OF_OTHERS = {
    "os._exit": "*",  # documented
    "atexit._run_exitfuncs": "workers/servers/leaving.py",
    "made._game": "workers/gateway/server.py",  # an Actor's, before its constructor runs
}


def test_no_module_uses_private_names_of_another():
    touched = {
        (str(path.relative_to(ROOT)), ast.unparse(one)) for path in SOURCES for one in touched_of_others(nodes(path))
    }
    known = {(file, one) for file, names in OF_THE_SAME_FILE.items() for one in names}
    assert {(file, one) for file, one in touched - known if OF_OTHERS.get(one) not in ("*", file)} == set()
    assert known <= touched, "the table has entries that no module uses"
