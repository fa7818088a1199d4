"""Facts about a RabbitMQ: by AMQP and, where available, by its management API or rabbitmqctl.

Unknown facts are None.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import amqp
import kombu

from tasks.topology import Topology
from workers.servers.checks import CHECK_TIMEOUT, answering

CONFIRM_WITHIN = 5.0  # s; a healthy broker confirms an unroutable message within milliseconds
MANAGEMENT_PORT = 15672
MANAGEMENT_TIMEOUT = 3.0  # s
CONTROL_TIMEOUT = 60.0  # s for one rabbitmqctl, whose Erlang takes seconds to start on a busy machine

Control = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class BrokerFacts:
    """Facts about a broker: sizes in bytes, times in seconds."""

    product: str = ""
    version: str = ""
    # By AMQP.
    confirms: bool | None = None  # whether a publish was confirmed
    blocked: str | None = None  # the broker's reason for blocking publishers
    refused: tuple[str, ...] = ()  # actions on the run's names that the user may not do
    default_queue_type: str | None = None
    denies_transient_queues: bool | None = None
    # By the management API or rabbitmqctl.
    alarms: tuple[str, ...] | None = None
    memory_used: int | None = None
    memory_limit: int | None = None
    disk_free: int | None = None
    disk_limit: int | None = None
    handles_used: int | None = None
    handles: int | None = None
    deprecated_in_use: tuple[str, ...] | None = None
    # By rabbitmqctl alone.
    consumer_timeout: float | None = None  # infinite: switched off
    unseen: dict[str, str] = field(default_factory=dict)  # "management" or "rabbitmqctl" -> why it gave no facts

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the version as numbers: (4, 0, 5) for "4.0.5"."""
        return tuple(int(part) for part in re.findall(r"\d+", self.version)[:3])


def over_amqp(url: str, topology: Topology) -> BrokerFacts:
    """Gather facts by actions of a run, with its names. Raises amqp.AMQPError or OSError if the broker goes away."""
    url = answering(url)
    facts = _publishing(url)
    if facts.blocked or facts.confirms is False:  # publishers wait, and so would this
        return facts
    connection = _connect(url)
    try:
        facts = replace(
            facts,
            refused=tuple(what for what, attempt in ATTEMPTS if _refused(connection, topology, attempt)),
            default_queue_type=_default_queue_type(connection, topology),
        )
    finally:
        connection.close()
    return replace(facts, denies_transient_queues=_denies_transient(url, topology))


def _connect(url: str, **options: Any) -> Any:
    made = kombu.Connection(url, connect_timeout=CHECK_TIMEOUT)
    made.transport_options.update(read_timeout=CHECK_TIMEOUT, write_timeout=CHECK_TIMEOUT, **options)
    return made.transport.establish_connection()


def _publishing(url: str) -> BrokerFacts:
    """Publish on a separate connection, as the broker stops reading from one that it blocks; return the facts."""
    reasons: list[str] = []
    confirmed: list[Any] = []
    connection = _connect(url, on_blocked=reasons.append)
    try:
        about = connection.server_properties
        facts = BrokerFacts(str(about.get("product", "AMQP broker")), str(about.get("version", "")))
        channel = connection.channel()
        channel.confirm_select()
        channel.events["basic_ack"].add(lambda *told: confirmed.append(told))
        channel.basic_publish(amqp.Message(b""), exchange="", routing_key="warren.doctor")  # to nobody: dropped
        limit = time.monotonic() + CONFIRM_WITHIN
        while not confirmed and not reasons and time.monotonic() < limit:
            try:
                connection.drain_events(timeout=max(0.01, limit - time.monotonic()))
            except TimeoutError:
                break
        return replace(facts, confirms=bool(confirmed), blocked=reasons[0] if reasons else None)
    except amqp.AccessRefused:  # by the default exchange; `ATTEMPTS` tries it again
        return facts
    finally:
        if reasons:
            connection.collect()  # a broker that has blocked a connection does not read connection.close either
        else:
            connection.close()


def _declares(channel: Any, topology: Topology) -> None:
    queue = topology.probe_queue(exclusive=True)(channel)
    queue.exchange.declare()
    queue.queue_declare()


def _transfers(channel: Any, topology: Topology) -> None:
    queue = topology.probe_queue(exclusive=True)(channel)
    queue.declare()
    queue.exchange.publish(queue.exchange.Message("", delivery_mode=1), routing_key=queue.routing_key)
    queue.get(no_ack=True)  # waits for an answer, before which a refusal of the publish has come


def _answers(channel: Any, topology: Topology) -> None:
    """Publish through the default exchange, as a service answers a call."""
    channel.basic_publish(amqp.Message(b""), exchange="", routing_key=topology.probe_queue().name)  # to nobody
    channel.basic_qos(0, 1, False)  # waits for an answer, as above


ANSWER = "publish to the default exchange"
ATTEMPTS: tuple[tuple[str, Callable[[Any, Topology], None]], ...] = (
    ("declare queues and exchanges", _declares),
    ("bind, publish and consume", _transfers),
    (ANSWER, _answers),
)


def _refused(connection: Any, topology: Topology, attempt: Callable[[Any, Topology], None]) -> bool:
    # A channel dies with a refusal, so each attempt has its own.
    channel = connection.channel()
    try:
        attempt(channel, topology)
        return False
    except amqp.AccessRefused:
        return True
    finally:
        if channel.is_open:
            channel.close()


def _default_queue_type(connection: Any, topology: Topology) -> str | None:
    """Return the vhost's default queue type.

    It is found by declaring a queue without a type and declaring it again as classic.
    """
    queue = topology.probe_queue()
    channel = connection.channel()
    try:
        queue(channel).queue_declare()
        queue.queue_arguments = {"x-queue-type": "classic"}
        queue(channel).queue_declare()
        found: str | None = "classic"
    except amqp.PreconditionFailed as error:
        match = re.search(r"current is '(\w+)'", str(error))
        found = match[1] if match else None
    except amqp.AMQPError:
        return None
    finally:
        if channel.is_open:
            channel.close()
    channel = connection.channel()
    queue(channel).delete()
    channel.close()
    return found


def _denies_transient(url: str, topology: Topology) -> bool | None:
    """Return whether transient shared queues are denied: RabbitMQ 4.3 closes the connection (541) over them."""
    queue = topology.probe_queue()
    queue.durable, queue.auto_delete = False, True
    connection = _connect(url)
    try:
        channel = connection.channel()
        queue(channel).queue_declare()
        queue(channel).delete()
        return False
    except amqp.AccessRefused:
        return None
    except (amqp.InternalError, amqp.PreconditionFailed, amqp.AMQPNotImplementedError, amqp.NotAllowed):
        return True
    finally:
        connection.collect()


def default_management_url(broker_url: str) -> str | None:
    """Return the default URL of the management plugin; None for a broker with TLS.

    The user decides where the password of such a broker is sent in clear text, or with which certificate.
    """
    parts = urlsplit(broker_url.partition(";")[0])
    return None if parts.scheme == "amqps" else f"http://{parts.hostname or 'localhost'}:{MANAGEMENT_PORT}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirections, as they could send the password to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def management_api(broker_url: str, management_url: str) -> Callable[[str], Any]:
    """Return a function that gets the JSON at a path of the management API, without any proxy.

    It raises OSError (such as urllib.error.HTTPError), and ValueError for an answer that is not JSON. Over https the
    certificate is checked by the broker URL's `ssl_ca_certs`, or the system's authorities.
    """
    parts = urlsplit(broker_url.partition(";")[0])
    base = management_url.rstrip("/")
    authorities = dict(parse_qsl(parts.query)).get("ssl_ca_certs")
    handlers: list[Any] = [urllib.request.ProxyHandler({}), _NoRedirect]
    if base.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=authorities)))
    opener = urllib.request.build_opener(*handlers)
    login = f"{unquote(parts.username or 'guest')}:{unquote(parts.password or 'guest')}"
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}

    def get(path: str) -> Any:
        request = urllib.request.Request(f"{base}/api/{path}", headers=headers)
        with opener.open(request, timeout=MANAGEMENT_TIMEOUT) as answer:
            return json.load(answer)

    return get


def with_management(facts: BrokerFacts, broker_url: str, management_url: str | None = None) -> BrokerFacts:
    """Return `facts` with those of the management API, which is by default on the broker's host."""
    base = management_url or default_management_url(broker_url)
    if base is None:
        why = "not asked for a broker with TLS without a URL; give --management-url https://HOST:15671"
        return replace(facts, unseen={**facts.unseen, "management": why})
    try:
        get = management_api(broker_url, base)
        facts = of_nodes(facts, get("nodes"))
    except urllib.error.HTTPError as error:
        refused = "the management API refuses this user, which needs the tag monitoring: rabbitmqctl set_user_tags"
        why = refused if error.code in (401, 403) else f"{base} answers {error.code}"
        return replace(facts, unseen={**facts.unseen, "management": why})
    except (OSError, ValueError):
        why = f"needs the management plugin (nothing answers at {base})"
        return replace(facts, unseen={**facts.unseen, "management": why})
    try:
        used = get("deprecated-features/used")  # since RabbitMQ 3.13
    except (OSError, ValueError):
        return facts
    return replace(facts, deprecated_in_use=tuple(sorted(one["name"] for one in used)))


def of_nodes(facts: BrokerFacts, nodes: Sequence[dict[str, Any]]) -> BrokerFacts:
    """Return `facts` with those of /api/nodes; for a cluster, each fact is that of the worst node."""
    alarms = [
        f"{kind} on {node['name']}"
        for node in nodes
        for kind, flag in (("memory", "mem_alarm"), ("disk", "disk_free_alarm"))
        if node.get(flag)
    ]
    running = [node for node in nodes if node.get("running", True) and "mem_used" in node]
    if not running:
        return replace(facts, alarms=tuple(alarms))
    fullest = max(running, key=lambda node: node["mem_used"] / max(1, node["mem_limit"]))
    tightest = min(running, key=lambda node: node["disk_free"] - node["disk_free_limit"])
    busiest = max(running, key=lambda node: node["fd_used"] / max(1, node["fd_total"]))
    return replace(
        facts,
        alarms=tuple(alarms),
        memory_used=fullest["mem_used"], memory_limit=fullest["mem_limit"],
        disk_free=tightest["disk_free"], disk_limit=tightest["disk_free_limit"],
        handles_used=busiest["fd_used"], handles=busiest["fd_total"],
    )  # fmt: skip


def with_rabbitmqctl(facts: BrokerFacts, control: Control) -> BrokerFacts:
    """Return `facts` with those of `rabbitmqctl`, which `control` runs with the given arguments."""
    try:
        done = control(["--quiet", "status", "--formatter", "json"])
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            raise OSError(f"rabbitmqctl ended with status {done.returncode}: {lines[0]}")
        facts = of_status(facts, json.loads(done.stdout))
        timeout = control(["--quiet", "eval", "application:get_env(rabbit, consumer_timeout)."])
        return replace(facts, consumer_timeout=consumer_timeout_of(timeout.stdout))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return replace(facts, unseen={**facts.unseen, "rabbitmqctl": str(error)})


def of_status(facts: BrokerFacts, status: dict[str, Any]) -> BrokerFacts:
    """Return `facts` with those of `rabbitmqctl status --formatter json`."""
    memory, files = status.get("memory") or {}, status.get("file_descriptors") or {}
    used = memory.get("total")
    if isinstance(used, dict):  # by several strategies; alarms use the resident set, or the largest
        used = used.get("rss") or max(used.values())
    alarms = [str(one.get("resource", one) if isinstance(one, dict) else one) for one in status.get("alarms", ())]
    return replace(
        facts,
        alarms=tuple(alarms),
        memory_used=used, memory_limit=status.get("vm_memory_limit") or status.get("vm_memory_high_watermark_limit"),
        disk_free=_number(status.get("disk_free")), disk_limit=_number(status.get("disk_free_limit")),
        handles_used=files.get("total_used"), handles=files.get("total_limit"),
    )  # fmt: skip


def command_line(command: Sequence[str]) -> Control:
    """Return a rabbitmqctl that runs by a command line such as `docker exec NAME rabbitmqctl`."""

    def control(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=CONTROL_TIMEOUT, check=False
        )

    return control


def consumer_timeout_of(told: str) -> float | None:
    """Parse `{ok,1800000}` (ms), `undefined` or `{ok,undefined}` into seconds; None for anything else."""
    if match := re.search(r"\{ok,\s*(\d+)\}", told):
        return int(match[1]) / 1000.0
    return float("inf") if "undefined" in told or "infinity" in told else None


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None  # "NaN" where the disk cannot be seen
