"""Sending tasks by a run's routes, in the format of the call that sends them; an error if no queue takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from celery.app.amqp import AMQP
from celery.app.routes import Router
from kombu.exceptions import EncodeError, OperationalError

from tasks import brokers
from tasks.app.formats import JSON, answers_json, keeps_books, unfit
from tasks.app.uncompressed import RunConnection
from tasks.topology import foreign_queue

# The tries of one message while the broker restarts: about 2 s.
RETRY_POLICY = {"max_retries": 5, "interval_start": 0.05, "interval_step": 0.2, "interval_max": 1.0}


class RunRouter(Router):  # type: ignore[misc]
    """Celery's router for any queue's name: a client's own tasks in a chain with services name their queues."""

    def expand_destination(self, route: Any) -> Any:
        """Put a Queue in the place of a queue's name; one that is not the run's is not declared."""
        name = route.get("queue") if isinstance(route, dict) else None
        if isinstance(name, str) and name not in self.queues:
            route |= {"queue": foreign_queue(name), "exchange": "", "routing_key": name}
        return super().expand_destination(route)


class RunAMQP(AMQP):  # type: ignore[misc]
    """`app.amqp` of every app of a run."""

    Connection = BrokerConnection = RunConnection

    def Router(self, queues: Any = None, create_missing: bool | None = None) -> RunRouter:
        """Return the router of tasks that are sent."""
        return RunRouter(self.routes, queues or self.queues, app=self.app)

    @cached_property
    def send_task_message(self) -> Callable[..., Any]:
        """Return the function that sends each task, with the arguments of Celery's."""
        send = super().send_task_message
        return partial(_send, self.app, send)


def _send(app: Any, send: Callable[..., Any], producer: Any, name: str, message: Any, **options: Any) -> Any:
    """Send a task. Raises OperationalError if no queue takes a call's callback, or the next task of its chain."""
    if not keeps_books():
        return send(producer, name, message, **options)
    if answers_json() and options.get("serializer") in (None, app.conf.task_serializer):
        options["serializer"] = JSON
    lost = OperationalError(
        f"no queue takes {name}: no worker has ever offered that service, or it is a task of a client's own, "
        "whose signature has to name its queue: .set(queue=NAME)"
    )
    if brokers.of(app).refuses:
        producer.on_return = _note_return  # for a channel that the producer may have to open
        producer.channel.events["basic_return"].add(_note_return)
        options["mandatory"] = True
    elif _is_lost_on_redis(app, producer.channel, options):
        raise lost
    _returned.ids = set()
    try:
        sent = send(producer, name, message, **options)
    except EncodeError as error:
        raise (unfit(message.body[0]) if answers_json() else error) from None
    if message.headers["id"] in _returned.ids:
        raise lost
    return sent


def _is_lost_on_redis(app: Any, channel: Any, options: dict[str, Any]) -> bool:
    """Return True where no queue is bound for a call of a service: a Redis broker drops it silently."""
    exchange = app.warren_topology.service.name
    if options.get("exchange") != exchange:
        return False
    return options.get("routing_key") not in [key for key, *_ in channel.get_table(exchange)]


_returned = threading.local()  # ids: of messages that no queue took


def _note_return(error: Exception, exchange: str, routing_key: str, message: Any) -> None:
    """Keep the id of a message that the broker gave back; it comes before the confirmation that ends the publish."""
    _returned.ids.add((message.headers or {}).get("id"))
