"""A worker's end of the fast path: one thread with a connection of its own that serves all services of its workers.

Read all that has arrived, decode, gather, call once, write all replies and one acknowledgement, read on. Celery's own
consumer, its event loop and its pool take no part; Celery still starts and stops this (see server.py), knows each
service as a task, and lists and counts it for Flower.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import xxhash
from celery.app.trace import build_tracer
from celery.utils.log import get_logger
from celery.worker import state as worker_state

from tasks import codec
from tasks.admin.registry import Directory
from tasks.amqp import frames
from tasks.amqp.connection import GONE, Link
from tasks.amqp.frames import Delivery, Properties
from tasks.amqp.messages import DIRECT_REPLY, EXPIRES_BYTES, FAILED, LOST, NO_LINKS, Replies
from tasks.app.dead_letters import Letter, send_dead_letter
from tasks.app.redelivery import Deliveries
from tasks.events.chunks import WINDOW, Assembler
from tasks.events.over_amqp import waiting_messages
from tasks.events.retained import Retained
from tasks.service import Spec, Subscribed, Worker, handlers_of, role_of, services_of
from tasks.topology import Topology
from tasks.worker.running import Failed, failed, replay
from tasks.worker.task_events import EventSampler
from warren.errors import DeliveriesExceeded

logger = get_logger(__name__)

PREFETCH = 64  # calls that a worker may hold, a service; more where its batches are larger
FLUSH_AFTER = 0.0005  # s of computing after which replies that are ready go out, though more calls wait
FINISH_WITHIN = 2.0  # s after being told to stop in which calls already held are run; the rest is handed back
RECONNECT_AFTER = (0.1, 2.0)  # s between attempts, doubled from the first to the second
ENTER_EVERY = 3600.0  # s between renewals of the run's directory


class Call:
    """One message that waits to be run."""

    __slots__ = ("args", "delivery", "embed", "kwargs", "properties")

    def __init__(self, delivery: Delivery, properties: Properties, args: Any, kwargs: Any, embed: Any) -> None:
        self.delivery, self.properties = delivery, properties
        self.args, self.kwargs, self.embed = args, kwargs, embed


class Lane:
    """One service of one worker: what waits for it, and what has become of what did."""

    def __init__(self, spec: Spec, task: Any, trace: Any) -> None:
        self.spec, self.task, self.trace = spec, task, trace
        self.waiting: deque[Call] = deque()
        self.since = 0.0  # when the oldest of `waiting` came
        self.counts: Counter[str] = Counter()


class Heard:
    """One event handler of one worker."""

    def __init__(self, method: Any, subscribed: Subscribed) -> None:
        self.method, self.subscribed = method, subscribed
        self.assembler = Assembler(subscribed)
        self.last: int | None = None  # digest of the newest payload heard


class Receiver:
    """Serves `workers` until stopped. `tasks`: service name -> its Celery task (a `serving.ServiceTask`).

    `event_rate`: share of calls that send Celery's task events, for Flower.
    """

    def __init__(
        self, app: Any, topology: Topology, workers: Sequence[Worker], tasks: dict[str, Any], event_rate: float = 0.0
    ) -> None:
        self._app, self._topology, self._workers = app, topology, workers
        self._directory = Directory(app, topology)
        self._retained = Retained(app, topology)
        self._tasks, self._event_rate = tasks, event_rate
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="services", daemon=True)
        self._lanes: dict[str, Lane] = {}
        self._heard: dict[str, Heard] = {}
        self._held: dict[int, None] = {}  # delivery tags that are not to be acknowledged yet, in order
        self._order: deque[Lane] = deque()  # whose turn it is: a lane for each call that came
        self._out: list[bytes] = []
        self._acks: list[int] = []
        self._sampler: EventSampler | None = None
        self.hostname = ""
        self.ready = threading.Event()
        self.started_at = time.time()
        self.busy = 0.0  # s spent in services and handlers

    def start(self, hostname: str) -> None:
        """Begin to serve; `ready` is set once every queue is consumed."""
        self.hostname = hostname
        for spec in (spec for worker in self._workers for spec in services_of(worker)):
            task = self._tasks[spec.name]
            trace = build_tracer(spec.name, task, self._app.loader, hostname, app=self._app)
            self._lanes[spec.name] = Lane(spec, task, trace)
        for worker in self._workers:
            for method, subscribed in handlers_of(worker).items():
                self._heard[f"event:{role_of(worker)}.{method}"] = Heard(getattr(worker, method), subscribed)
        self._timed = [lane for lane in self._lanes.values() if lane.spec.wait is not None]
        self._sampler = EventSampler(self._app, hostname, self._event_rate)
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """Finish what is held, hand back what cannot be finished soon, leave."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def status(self) -> dict[str, Any]:
        """What is served here, how much has been done, and how busy this worker is: for discovery."""
        up = max(time.time() - self.started_at, 1e-9)
        services = {
            name: {**lane.spec.as_dict(), **lane.counts, "waiting": len(lane.waiting)}
            for name, lane in self._lanes.items()
        }
        return {"since": self.started_at, "busy": min(self.busy / up, 1.0), "services": services}

    # The thread.

    def _run(self) -> None:
        pause = RECONNECT_AFTER[0]
        while not self._stopping.is_set():
            link = None
            try:
                link = self._open()
                pause = RECONNECT_AFTER[0]
                self._serve(link)
                self._leave(link)
            except GONE as error:
                if not self._stopping.is_set():
                    logger.warning("services: connection to the broker lost (%s); connecting anew", error)
            except Exception:
                logger.critical("services: failed outside the code of any service; connecting anew", exc_info=True)
            finally:
                self.ready.clear()
                if link is not None:
                    link.close()
            self._stopping.wait(pause)
            pause = min(2 * pause, RECONNECT_AFTER[1])
        if self._sampler is not None:
            self._sampler.close()

    def _open(self) -> Link:
        link = Link(self._app)
        self._held.clear()
        self._order.clear()
        self._out.clear()
        self._acks.clear()
        self._replies = Replies(link.channel_id, link.frame_max)
        self._now = _now()
        for tag, heard in self._heard.items():
            on = heard.subscribed
            queue = self._topology.event_queue(on.event, tag.partition(":")[2], waiting_messages(on))(link.channel)
            queue.declare()
            link.consume(queue.name, tag, prefetch=WINDOW)
            heard.assembler = Assembler(on)
        self._catch_up()
        for name, lane in self._lanes.items():
            lane.waiting.clear()
            queue = self._topology.service_queue(name, lane.spec.response, lane.spec.bound)(link.channel)
            queue.declare()
            if not lane.spec.response:  # its dead letters have no other place than one of their own
                self._topology.dead_queue(name.partition(".")[0])(link.channel).declare()
            link.consume(queue.name, name, prefetch=max(PREFETCH, 2 * lane.spec.batch))
        self._enter()
        self.ready.set()
        return link

    def _enter(self) -> None:
        self._directory.enter(lane.spec for lane in self._lanes.values())
        self._entered_at = time.monotonic()

    def _catch_up(self) -> None:
        """Hear what was fired before the queues above were bound, but not again what came before a lost connection."""
        wanted = [heard for heard in self._heard.values() if heard.subscribed.retained]
        self._retained.hear(heard.subscribed.event for heard in wanted)
        for heard in wanted:
            body = self._retained.newest(heard.subscribed.event)
            if body is not None and xxhash.xxh3_64_intdigest(body) != heard.last:
                self._hear(heard, body)

    def _serve(self, link: Link) -> None:
        self._link = link
        while not self._stopping.is_set():
            deliveries = link.drain(self._patience())
            if deliveries:
                self._take(deliveries)
            self._order.extend(lane for lane in self._timed if lane.waiting and self._waited(lane))
            self._run_lanes(link)
            self._flush()
            if not deliveries and time.monotonic() - self._entered_at > ENTER_EVERY:
                self._enter()

    def _patience(self) -> float | None:
        """s until a batch that waits for more has waited long enough; None while none does."""
        left = [
            lane.since + lane.spec.wait - time.monotonic()
            for lane in self._timed
            if lane.waiting and lane.spec.wait is not None
        ]
        return max(0.0, min(left)) if left else None

    def _take(self, deliveries: list[Delivery]) -> None:
        """Sort what arrived: events to their handlers at once, calls to their lanes."""
        self._now = _now()
        newest: dict[Heard, bytes] = {}
        for delivery in deliveries:
            lane = self._lanes.get(delivery.consumer)
            if lane is not None:
                self._accept(lane, delivery)
                continue
            self._held[delivery.tag] = None
            heard = self._heard[delivery.consumer]
            body = heard.assembler.add(delivery)
            for tag in heard.assembler.used():
                del self._held[tag]
                self._acks.append(tag)
            if body is not None and heard.subscribed.latest:
                newest[heard] = body
            elif body is not None:
                self._hear(heard, body)
        for heard, body in newest.items():
            self._hear(heard, body)

    def _hear(self, heard: Heard, body: bytes) -> None:
        started = time.monotonic()
        if heard.subscribed.retained:
            heard.last = xxhash.xxh3_64_intdigest(body)
        try:
            heard.method(codec.decode(body))
        except Exception:
            logger.exception("the handler of event %r failed", heard.subscribed.event)
        self.busy += time.monotonic() - started

    def _accept(self, lane: Lane, delivery: Delivery) -> None:
        """A call into its lane, or its end: it is unreadable, or the worker that had it before this one died."""
        try:
            properties = frames.read_properties(delivery.properties)
        except frames.Malformed as error:
            logger.error("a message for %s cannot be read: %s", lane.spec.name, error)
            self._out.append(frames.reject(self._link.channel_id, delivery.tag, requeue=False))
            return
        if delivery.redelivered and properties.reply_to.startswith(DIRECT_REPLY):
            # It may be what its worker died of. The caller decides, and counts.
            lane.counts["handed back"] += 1
            self._out += self._replies.write(properties.reply_to, properties.correlation_id, b"", LOST)
            self._acks.append(delivery.tag)
            return
        try:
            args, kwargs, embed = codec.decode(delivery.body)
        except Exception as error:
            call = Call(delivery, properties, (), {}, None)
            self._answer(lane, call, failed(error))
            return
        if not lane.waiting:
            lane.since = time.monotonic()
        self._order.append(lane)
        lane.waiting.append(Call(delivery, properties, args, kwargs, embed))
        self._held[delivery.tag] = None

    def _run_lanes(self, link: Link) -> None:
        """Run what is ready, in the order in which it came."""
        while self._order:
            lane = self._order.popleft()
            if not lane.waiting:
                continue  # its calls went with an earlier batch
            missing = lane.spec.batch - len(lane.waiting)
            if missing > 0 and lane.spec.batch > 1:
                # Is there really nothing more? A look at the socket costs little beside a call.
                if more := link.drain(0.0):
                    self._order.appendleft(lane)
                    self._take(more)
                    continue
                if len(lane.waiting) < lane.spec.minimum and not self._waited(lane):
                    continue  # its next call, or its time, brings it back
            self._run_batch(lane)

    def _next(self, lane: Lane) -> list[Call]:
        """Up to a batch of calls that someone still waits for; the others are dropped, and counted."""
        calls: list[Call] = []
        while lane.waiting and len(calls) < lane.spec.batch:
            call = lane.waiting.popleft()
            headers = call.properties.headers
            expires = headers.get("expires")
            if (expires and _past(expires, self._now)) or (
                worker_state.revoked and headers.get("id") in worker_state.revoked
            ):
                lane.counts["dropped"] += 1
                self._held.pop(call.delivery.tag, None)
                self._acks.append(call.delivery.tag)
            else:
                calls.append(call)
        return calls

    @staticmethod
    def _waited(lane: Lane) -> bool:
        return lane.spec.wait is not None and time.monotonic() - lane.since >= lane.spec.wait

    def _run_batch(self, lane: Lane) -> None:
        calls = self._next(lane)
        if not calls:
            return
        started = time.monotonic()
        arguments = [(call.args, call.kwargs) for call in calls]
        suspected = any(call.delivery.redelivered for call in calls)
        if suspected:
            outcomes = self._run_suspects(lane, calls, arguments)
        else:
            outcomes = lane.task.run_calls(arguments)
        taken = time.monotonic() - started
        self.busy += taken
        lane.counts["batches"] += 1
        for call, outcome in zip(calls, outcomes, strict=True):
            self._held.pop(call.delivery.tag, None)
            self._answer(lane, call, outcome)
        worker_state.total_count[lane.spec.name] += len(calls)
        if self._sampler is not None and self._sampler.rate:
            self._sampler.note(lane.spec.name, calls, outcomes, taken)
        lane.since = time.monotonic()
        # What was given up is acknowledged before the next call may kill this worker too: or it is given up again.
        if suspected or taken > FLUSH_AFTER:
            self._flush()
            self._now = _now()

    def _run_suspects(self, lane: Lane, calls: list[Call], arguments: list[Any]) -> list[Any]:
        """Run calls of which some have been with a worker that died, and give up what has been with enough of them."""
        ids = [call.properties.headers.get("id") if call.delivery.redelivered else None for call in calls]
        limit = 1 + lane.spec.retries
        counts: Deliveries = self._app.warren_deliveries
        results = counts.run(lane.spec.name, limit, lane.task.run_calls, arguments, ids)
        return [failed(result) if isinstance(result, DeliveriesExceeded) else result for result in results]

    def _answer(self, lane: Lane, call: Call, outcome: Any) -> None:
        """The outcome to whoever waits for it: over the channel it came from, or by Celery's own ways."""
        properties, tag = call.properties, call.delivery.tag
        lane.counts["calls"] += 1
        if properties.reply_to.startswith(DIRECT_REPLY):
            self._out += self._reply(properties, outcome)
            if isinstance(outcome, Failed):
                lane.counts["failed"] += 1
        elif properties.reply_to or (call.embed and call.embed != NO_LINKS) or properties.headers.get("group"):
            request = {**properties.headers, **(call.embed or {}), "hostname": self.hostname}
            request |= {"correlation_id": properties.correlation_id, "reply_to": properties.reply_to}
            request["delivery_info"] = {"redelivered": call.delivery.redelivered, "priority": None}
            failure = replay(lane.task, lane.trace, outcome, request["id"], (call.args, call.kwargs), request)
            lane.counts["failed"] += failure is not None
        elif isinstance(outcome, Failed):
            lane.counts["failed"] += 1
            if isinstance(outcome.error, DeliveriesExceeded):
                logger.error("%s", outcome.error)
                if send_dead_letter(self._app, _letter(lane, call), str(outcome.error)):
                    self._acks.append(tag)
                    return
            else:
                logger.error("%s failed and nobody waits for its result:\n%s", lane.spec.name, outcome.traceback)
            self._out.append(frames.reject(self._link.channel_id, tag, requeue=False))
            return
        self._acks.append(tag)

    def _reply(self, properties: Properties, outcome: Any) -> list[bytes]:
        reply_to, call_id = properties.reply_to, properties.correlation_id
        if not isinstance(outcome, Failed):
            try:
                return self._replies.write(reply_to, call_id, codec.encode(outcome))
            except Exception as error:  # a result outside the wire format is the service's failure
                outcome = failed(error)
        body = codec.encode((outcome.kind, str(outcome.error), outcome.traceback))
        return self._replies.write(reply_to, call_id, body, FAILED)

    def _flush(self) -> None:
        """Write the replies, and acknowledge in as few words as possible what has been used."""
        if self._acks:
            self._out += frames.acks(self._link.channel_id, self._acks, self._held)
            self._acks.clear()
        if self._out:
            self._link.send(b"".join(self._out))
            self._out.clear()

    def _leave(self, link: Link) -> None:
        """Told to stop: take no more, run what is held while there is time, hand the rest back as it came."""
        for tag in (*self._lanes, *self._heard):
            link.channel.basic_cancel(tag)
        self._take_rest(link)
        deadline = time.monotonic() + FINISH_WITHIN
        for lane in self._lanes.values():
            while lane.waiting and time.monotonic() < deadline:
                self._run_batch(lane)
            while lane.waiting:
                # As a new message: a redelivered one would look like one that killed its worker.
                call = lane.waiting.popleft()
                del self._held[call.delivery.tag]
                self._out.append(frames.publish_method(link.channel_id, self._topology.service.name, lane.spec.name))
                self._out += frames.content(
                    link.channel_id, call.delivery.properties, call.delivery.body, link.frame_max
                )
                self._acks.append(call.delivery.tag)
        self._flush()

    def _take_rest(self, link: Link) -> None:
        while deliveries := link.drain(0.0):
            self._take(deliveries)


def _letter(lane: Lane, call: Call) -> Letter:
    properties = call.properties
    return Letter(
        call.delivery.body,
        properties.headers,
        properties.content_type,
        "binary",
        properties.correlation_id,
        lane.spec.name,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _past(expires: str, now: str) -> bool:
    """Whether the moment `expires` (ISO 8601) is before `now` (the same, UTC, in full length)."""
    if len(expires) == EXPIRES_BYTES and expires.endswith("+00:00"):
        return expires < now  # the same form sorts as text
    try:
        moment = datetime.fromisoformat(expires)
    except ValueError:
        return False
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) < datetime.now(UTC)
