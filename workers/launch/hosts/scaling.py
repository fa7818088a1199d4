"""Scaling and stopping of a live run by requests.

Requests arrive by the run's remote control (`tasks.app.control`, node NODE). The launcher's main thread carries them
out and answers with what was done. It stores the new counts in Redis, where the learner finds the number of rollouts
of its next gathered round, and in the run's folder for a resume.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass, field
from typing import Any

import redis
from celery.utils.log import get_logger
from kombu.mixins import ConsumerMixin

from warren.errors import ConfigurationError, WarrenError, unknown_name
from workers.launch.hosts.scale_request import ANSWER_WITHIN, CHANGE, COMMAND, NODE, STOP, redis_time
from workers.launch.processes.supervisor import Supervisor
from workers.launch.spec import ProcessSpec

logger = get_logger(__name__)

STOPS_WITHIN = 0.2  # s
REMEMBERED = 1000  # requests whose answers are kept, for repeated requests


@dataclass
class ScaledGroup:
    """A scalable kind of process: its members on this host, and how many other hosts have (`elsewhere`)."""

    spec: ProcessSpec
    elsewhere: int = 0
    members: list[str] = field(default_factory=list)
    next_rank: int = 0  # ranks are not reused, so each process has its own log
    started: bool = False  # its phase has begun

    @property
    def count(self) -> int:
        """Return the number of processes in the run, without those that are leaving or done."""
        return len(self.members if self.started else self.spec.ranks) + self.elsewhere

    def add_to(self, supervisor: Supervisor) -> str:
        """Start one more process and return its name. Raises WarrenError."""
        rank, self.next_rank = self.next_rank, self.next_rank + 1
        managed = supervisor.start(self.spec, rank)
        self.members.append(managed.name)
        return managed.name


Check = Callable[[Mapping[str, int]], Sequence[str]]  # new counts -> their problems
Keep = Callable[[Mapping[str, int]], None]  # stores counts for roles and a resume; raises redis.RedisError


class Scaling:
    """The groups of one run, changed by requests. `say` prints a line in the launcher, `stop_run` ends the run."""

    def __init__(
        self,
        app: Any,
        client: Any,
        specs: Sequence[ProcessSpec],
        supervisor: Supervisor,
        check: Check,
        keep: Keep,
        say: Callable[[str], None],
        stop_run: Callable[[], None],
        host: str = "this host",
    ) -> None:
        """`host`: name of the machine on which this launcher starts processes."""
        self._host = host
        self._redis, self._supervisor, self._check, self._keep = client, supervisor, check, keep
        self._say, self._stop_run = say, stop_run
        self._groups = {
            spec.setting: ScaledGroup(
                spec, (spec.num or len(spec.ranks)) - len(spec.ranks), [], spec.num or len(spec.ranks)
            )
            for spec in specs
            if spec.setting is not None
        }
        self._requests: queue.SimpleQueue[tuple[dict[str, Any], Future[dict[str, Any]]]] = queue.SimpleQueue()
        self._answered: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._listener = RequestListener(app, self._ask)

    def start(self) -> None:
        """Take over the processes of phase 0, which were started, and listen for requests."""
        self.take_over(0)
        self._listener.start()

    def take_over(self, phase: int) -> None:
        """Take over the processes of a phase, which were started: from now on their numbers can be changed."""
        for setting, group in self._groups.items():
            if group.spec.phase == phase:
                group.started = True
                group.members = [one.name for one in self._supervisor.children if one.spec.setting == setting]

    def poll(self) -> None:
        """Carry out the requests whose sender still waits."""
        while not self._requests.empty():
            body, answer = self._requests.get()
            if not answer.set_running_or_notify_cancel():
                continue  # the sender was told that nothing was done
            try:
                self._forget_finished()
                answer.set_result(self._answer(body))
            except (WarrenError, redis.RedisError, OSError) as error:
                answer.set_result({"error": str(error)})

    def _forget_finished(self) -> None:
        done = {managed.name for managed in self._supervisor.children if managed.done}
        for group in self._groups.values():
            group.members = [name for name in group.members if name not in done]

    def stop(self) -> None:
        """Tell the listener to stop, without waiting for its end."""
        self._listener.should_stop = True

    def ended(self) -> None:
        """Wait until the listener has ended."""
        self._listener.join()

    @property
    def counts(self) -> dict[str, int]:
        """Return setting -> number of processes, without those that are leaving."""
        return {setting: group.count for setting, group in self._groups.items()}

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """Pass a request to the main thread and wait for the answer; runs in the listener's thread."""
        answer: Future[dict[str, Any]] = Future()
        self._requests.put((body, answer))
        try:
            return answer.result(ANSWER_WITHIN)
        except TooLate:
            if answer.cancel():
                return {"error": f"the launcher was busy for {ANSWER_WITHIN:.0f} s; nothing was done"}
            return answer.result()  # it is being done

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        identity, until = body.get("identity"), body.get("until")
        if isinstance(identity, str) and identity in self._answered:
            return self._answered[identity]
        if isinstance(until, (int, float)) and redis_time(self._redis) > until:
            raise ConfigurationError("this request came too late, and was not carried out")
        if body.get("command") == STOP:
            self._stop_run()
            answer: dict[str, Any] = {"done": ["told the run to stop"], "counts": self.counts}
        else:
            wanted = body.get("wanted")
            if not isinstance(wanted, dict):
                raise ConfigurationError(f"{wanted!r} is not a table of counts")
            answer = self._change({str(setting): str(change) for setting, change in wanted.items()})
            answer["notes"] = self._notes()
        if isinstance(identity, str):
            self._answered[identity] = answer
            if len(self._answered) > REMEMBERED:
                self._answered.popitem(last=False)
        return answer

    def _change(self, wanted: dict[str, str]) -> dict[str, Any]:
        new = self._checked(wanted)
        changed = {setting: number for setting, number in new.items() if number != self._groups[setting].count}
        if changed:  # before anything is done, as Redis may be away
            self._keep({**self.counts, **changed})
        done: list[str] = []
        try:
            for setting, number in changed.items():
                group = self._groups[setting]
                for _ in range(number - group.count):
                    done.append(f"started {group.add_to(self._supervisor)}")
                for name in [group.members.pop() for _ in range(group.count - number)]:
                    self._supervisor.remove(name)
                    done.append(f"told {name} to finish and leave")
        except WarrenError as error:  # the system starts no more processes
            self._keep(self.counts)
            return {"error": "; ".join([str(error), *done, f"there are {_listed(self.counts)}"])}
        if done:
            self._say(f"{_listed(new)}: {'; '.join(done)}")
        return {"done": done, "counts": self.counts}

    def _notes(self) -> list[str]:
        """Return notes on groups that have processes on other hosts, which stay as they are."""
        return [
            f"{group.elsewhere} of the {group.count} {setting} are other hosts', and stay as they are: this command "
            f"changes those of {self._host}, which leads the run"
            for setting, group in self._groups.items()
            if group.elsewhere
        ]

    def _checked(self, wanted: dict[str, str]) -> dict[str, int]:
        """Return the new counts. Raises ConfigurationError with all their problems."""
        new, problems = {}, []
        for setting, change in wanted.items():
            match = CHANGE.fullmatch(change)
            if setting not in self._groups:
                problems.append(unknown_name("count of this run", setting, self._groups))
            elif match is None:
                problems.append(f"{setting}={change}: give a number, +N or -N")
            else:
                sign, number = match[1], int(match[2])
                group = self._groups[setting]
                new[setting] = {"": number, "+": group.count + number, "-": group.count - number}[sign]
                if not group.started and new[setting] != group.count:
                    problems.append(f"{setting}: they start when all services are served; ask again then")
                if 0 < new[setting] < group.elsewhere:
                    problems.append(
                        f"{setting}: {group.elsewhere} of them are other hosts', which this command does not change; "
                        "stop their launchers there"
                    )
        problems += self._check(new)
        if problems:
            raise ConfigurationError(problems)
        return new


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{setting}={number}" for setting, number in counts.items())


class RequestListener(ConsumerMixin):  # type: ignore[misc]
    """A thread that receives the launcher's commands of the remote control; `ask` carries them out."""

    def __init__(self, app: Any, ask: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.connection = app.connection_for_read(heartbeat=app.conf.broker_heartbeat)
        self._ask = ask
        self._node = app.control.mailbox.Node(NODE, handlers={COMMAND: self._scale, STOP: self._stop})
        given = {"safety_interval": STOPS_WITHIN}
        self._thread = threading.Thread(target=self.run, kwargs=given, name="requests", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread to end after `should_stop` is set; the command queue goes with its consumer."""
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def get_consumers(self, consumer_class: Any, channel: Any) -> list[Any]:
        self._node.channel = channel
        node = self._node
        return [node.Consumer(channel=channel, callbacks=[self._receive], on_decode_error=node.on_decode_error)]

    def on_connection_error(self, exc: Exception, interval: float) -> None:
        logger.warning("requests: cannot connect (%s), trying again in %.1f s", exc, interval)

    def _receive(self, body: Any, message: Any) -> None:
        # Other commands are for Celery's workers.
        if isinstance(body, dict) and body.get("method") in self._node.handlers:
            try:
                self._node.handle_message(body, message)
            except self.connection.connection_errors:
                raise
            except Exception as error:  # anything may have been sent, and this thread has to go on
                logger.warning("requests: dropped one that cannot be read: %s", error)

    def _scale(self, state: Any, **body: Any) -> dict[str, Any]:
        return self._ask({**body, "command": COMMAND})

    def _stop(self, state: Any, **body: Any) -> dict[str, Any]:
        return self._ask({**body, "command": STOP})
