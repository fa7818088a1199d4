"""Facts about a RabbitMQ from the HTTP API of its management plugin."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from workers.doctor.broker_facts import BrokerFacts

MANAGEMENT_PORT = 15672
MANAGEMENT_TIMEOUT = 3.0  # s


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


def management_api(broker_url: str, management_url: str) -> Callable[..., Any]:
    """Return a function that gets the JSON at a path of the management API, without a proxy; None for an empty answer.

    It takes the path, a method (GET) and a body to be sent as JSON. It raises OSError (such as urllib.error.HTTPError),
    also where no HTTP server answers, and ValueError for an answer that is not JSON. Over https the certificate is
    checked by the broker URL's `ssl_ca_certs`, or the system's authorities.
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

    def ask(path: str, method: str = "GET", body: Any = None) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        kinds = {} if sent is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{base}/api/{path}", data=sent, headers={**headers, **kinds}, method=method)
        try:
            with opener.open(request, timeout=MANAGEMENT_TIMEOUT) as answer:
                told = answer.read()
        except http.client.HTTPException as error:
            raise OSError(f"this is not HTTP: {error!r}") from None
        return json.loads(told) if told else None

    return ask


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
