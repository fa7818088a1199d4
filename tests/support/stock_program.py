"""`python -I -S stock_program.py SITE BROKER REDIS RUN`: a program with Celery and without this project.

SITE is a folder with Celery, the Redis client and their requirements; apart from the standard library, nothing else can
be imported. Each input line is a JSON object, {"do": COMMAND, "with": ARGUMENTS, "how": KEYWORDS}, and is answered by
one.
With a further argument `worker` it is a worker of its own tasks instead.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

SITE, BROKER, REDIS, RUN = sys.argv[1:5]
sys.path.insert(0, SITE)

from celery import Celery, chain, chord, group  # noqa: E402
from celery.exceptions import TimeoutError as CeleryTimeout  # noqa: E402
from celery.result import AsyncResult, GroupResult  # noqa: E402

NAME = f"warren.{RUN}"
OWN = f"own-{RUN}"


def route(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> dict[str, str]:
    return {"exchange": f"{NAME}.service", "routing_key": name} if name.startswith("actor.") else {"queue": OWN}


app = Celery("stock", broker=BROKER, backend=REDIS)
app.conf.update(
    task_routes=route,
    result_backend_transport_options={"global_keyprefix": f"{NAME}:"},
)
if sys.argv[5:] != ["worker"]:
    app.conf.control_exchange = f"{NAME}.control"  # the services' workers drop calls that this client revokes
if BROKER.startswith("redis"):
    app.conf.broker_transport_options = {"global_keyprefix": f"{NAME}:"}
else:
    app.conf.broker_transport_options = {"confirm_publish": True}  # `apply_async` returns once the broker has the call


@app.task(name="actor.add")
def add(a: Any, b: Any = 1, *, scale: Any = 1) -> None:
    """Stand in for the service of this name."""


@app.task(name="own.double")
def double(number: int) -> int:
    return 2 * number


@app.task(name="own.note")
def note(said: Any) -> None:
    """Store the argument for `noted`."""
    app.backend.client.rpush(f"{NAME}:noted", json.dumps(said))


results: dict[str, Any] = {}


def signature(what: dict[str, Any]) -> Any:
    """Return the signature for {"task": NAME, "args": ..., "options": ...}, {"chain": [...]} and the like."""
    if "chain" in what:
        return chain(*map(signature, what["chain"]))
    if "group" in what:
        return group([signature(one) for one in what["group"]])
    if "chord" in what:
        return chord([signature(one) for one in what["chord"]], signature(what["body"]))
    made = app.signature(what["task"], args=what.get("args", ()), kwargs=what.get("kwargs", {}))
    return made.set(**options(what.get("options", {})))


def options(given: dict[str, Any]) -> dict[str, Any]:
    given = dict(given)
    if "eta" in given:
        zone, seconds = given["eta"]
        now = datetime.now(UTC)
        now = now.replace(tzinfo=None) if zone == "naive" else now.astimezone(timezone(timedelta(hours=zone)))
        given["eta"] = now + timedelta(seconds=seconds)
    for name in ("link", "link_error"):
        if name in given:
            given[name] = signature(given[name])
    return given


def apply(key: str, what: dict[str, Any], **how: Any) -> None:
    results[key] = signature(what).apply_async(**options(how))


def delay(key: str, *args: Any, **kwargs: Any) -> None:
    results[key] = add.delay(*args, **kwargs)


def send(key: str, name: str, args: Any) -> None:
    results[key] = app.send_task(name, args)


def get(key: str, **how: Any) -> dict[str, Any]:
    try:
        found = results[key].get(**{"timeout": 120, **how})
    except CeleryTimeout as error:
        return {
            **told(error),
            "state": look(key).get("state", ""),
        }  # SUCCESS here: the result exists, but this process missed it
    except Exception as error:
        return told(error)
    parts = found if isinstance(found, list) else [found]
    parts = [told(one) if isinstance(one, Exception) else one for one in parts]
    return {"value": parts if isinstance(found, list) else parts[0]}


def told(error: Exception) -> dict[str, str]:
    return {"error": type(error).__name__, "text": str(error)}


def look(key: str) -> dict[str, Any]:
    found = results[key]
    if isinstance(found, GroupResult):
        return {"ready": found.ready(), "states": [one.state for one in found.results]}
    return {"state": found.state, "traceback": found.traceback, "id": found.id}


def by_id(key: str, other: str) -> None:
    results[other] = AsyncResult(results[key].id, app=app)


def saved(key: str, other: str) -> None:
    results[key].save()
    results[other] = GroupResult.restore(results[key].id, app=app)


def forget(key: str) -> None:
    results[key].forget()


# Only the worker of services replies: the limit ends the wait after one reply.
REPLY: dict[str, Any] = {"reply": True, "timeout": 120.0, "limit": 1}


def revoke(key: str, **how: Any) -> Any:
    return app.control.revoke(results[key].id, **REPLY, **how)


def revoke_stamped(**stamps: Any) -> Any:
    return app.control.revoke_by_stamped_headers(stamps, **REPLY)


def ping() -> Any:
    return app.control.ping(timeout=REPLY["timeout"], limit=REPLY["limit"])


def celery(*words: str) -> str:
    """Run `celery WORDS` and return what it prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        app.start(list(words))
    return said.getvalue()


def noted() -> list[Any]:
    return [json.loads(one) for one in app.backend.client.lrange(f"{NAME}:noted", 0, -1)]


def ours() -> dict[str, list[str]]:
    """Return the project's packages that are imported, and those that can be."""
    names = ("tasks", "warren", "workers", "league", "agents", "envs")
    imported = sorted({name.partition(".")[0] for name in sys.modules} & set(names))
    return {"imported": imported, "can be": [name for name in names if importlib.util.find_spec(name)]}


COMMANDS = (apply, delay, send, get, look, by_id, saved, forget, revoke, revoke_stamped, ping, celery, noted, ours)


def main() -> None:
    commands: dict[str, Callable[..., Any]] = {command.__name__: command for command in COMMANDS}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"answer": commands[asked["do"]](*asked["with"], **asked["how"])}
        except Exception as error:
            answer = {"raised": type(error).__name__, "text": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if sys.argv[5:] == ["worker"]:
        app.worker_main(["worker", "--pool=solo", "-Q", OWN, "--without-mingle", "--without-gossip", "-l", "INFO"])
    else:
        main()
